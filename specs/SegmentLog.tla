----------------------------- MODULE SegmentLog -----------------------------
(***************************************************************************)
(* One log made of segments. A producer writes each segment to all of its  *)
(* replicas; what all of them have on disk is committed. Whatever goes     *)
(* wrong ends the segment: its end is decided once, by the coordinator,    *)
(* and the log goes on in a new one, on other nodes.                       *)
(*                                                                         *)
(* The log holds the events 1, 2, 3, ... of one source: whoever becomes    *)
(* the producer asks where the log ends and goes on from there. So entry i *)
(* of the log has to be event i, for ever, whoever wrote it.               *)
(*                                                                         *)
(* A producer that ends its own segment knows what is committed: that is   *)
(* the end. A segment that is taken over is fenced, and what one fenced    *)
(* replica has is the end; entries that nobody knows to be committed may   *)
(* be among them, perhaps on that replica alone. So nobody reads them, and *)
(* nobody writes after them, before every replica has them.                *)
(*                                                                         *)
(* Messages are a set: they may be lost, late, out of order, and taken up  *)
(* more than once. Steps of coordinator, node and producer bear the names  *)
(* of functions of src/truecut/core/segment_log.py; the rest is the        *)
(* environment.                                                            *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Nodes,
  Replicas,      \* copies of a segment
  Producers,
  Events,        \* how many events the source has
  Segments,      \* how many segments there may be
  MaxFaults,     \* time-outs, crashes, takeovers, lost messages and disks in total
  MaxDead,       \* how many disks may be lost
  Bugs

VARIABLES
  coord,     \* durable: the segments, and the token of the log's owner
  node,      \* [Nodes -> by segment: what is on disk, and how much of it is known to be committed]
  prod,      \* [Producers -> what a producer knows; volatile]
  read,      \* what a consumer has read: a sequence of entries
  msgs,      \* what was sent
  sure,      \* ghost: the entries that were called committed, by a producer or by being readable
  dead,      \* nodes whose disk is lost; who comes back with another disk is another node
  faults

vars == <<coord, node, prod, read, msgs, sure, dead, faults>>

Undecided == -1
Torn == [event |-> 0, by |-> "torn"]
Nothing == [state |-> "none", log |-> <<>>, synced |-> 0, seen |-> 0]
Away == [phase |-> "away", token |-> 0, seg |-> 0, sent |-> 0, acked |-> [n \in Nodes |-> 0], done |-> 0]

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Least(S) == CHOOSE x \in S : \A y \in S : x <= y
Fault == faults < MaxFaults /\ faults' = faults + 1
Rank(state) == CASE state = "none" -> 0 [] state = "open" -> 1 [] state = "fenced" -> 2 [] state = "sealed" -> 3

Init ==
  /\ coord = [segs |-> <<>>, token |-> 0]
  /\ node = [n \in Nodes |-> [s \in 1..Segments |-> Nothing]]
  /\ prod = [p \in Producers |-> Away]
  /\ read = <<>> /\ msgs = {} /\ sure = <<>> /\ dead = {} /\ faults = 0

Last == Len(coord.segs)
Seg(s) == coord.segs[s]
Decided(s) == Seg(s).end # Undecided
Whole(s) == Seg(s).nodes \subseteq Seg(s).ended   \* every replica is known to have all of it
Alive == Nodes \ dead
At(n, s) == node[n][s]
Send(new) == msgs' = msgs \cup new

-----------------------------------------------------------------------------
(* The coordinator: each step is one durable transaction. *)

(* Somebody becomes the owner, with a token above all others. *)
Grant(p) ==
  /\ prod[p].phase = "away"
  /\ IF coord.token = 0 THEN UNCHANGED faults ELSE Fault
  /\ coord' = [coord EXCEPT !.token = @ + 1]
  /\ prod' = [prod EXCEPT ![p] = [Away EXCEPT !.phase = "asking", !.token = coord.token + 1]]
  /\ UNCHANGED <<node, read, msgs, sure, dead>>

(* The open segment of a former owner is fenced: asked for again and again, until its end is decided. *)
AskFence(n) ==
  /\ Last > 0 /\ ~Decided(Last) /\ Seg(Last).token # coord.token /\ n \in Seg(Last).nodes
  /\ Send({[type |-> "fence", seg |-> Last, to |-> n]})
  /\ msgs' # msgs
  /\ UNCHANGED <<coord, node, prod, read, sure, dead, faults>>

MayDecide(s) == ~Decided(s) \/ "close_decided_twice" \in Bugs

(* The producer ends its segment: what it has committed, all replicas have. *)
CloseByProducer(m) ==
  /\ m.type = "close" /\ MayDecide(m.seg)
  /\ Seg(m.seg).token = coord.token \/ "close_decided_twice" \in Bugs
  /\ Seg(m.seg).end # m.end
  /\ coord' = [coord EXCEPT !.segs[m.seg].end = m.end, !.segs[m.seg].known = m.end]
  /\ UNCHANGED <<node, prod, read, msgs, sure, dead, faults>>

(* A fenced replica tells what it has; no other entry can be committed any more. *)
CloseByFence(m) ==
  /\ m.type = "fenced" /\ MayDecide(m.seg)
  /\ Seg(m.seg).token # coord.token
  /\ Seg(m.seg).end # m.length
  /\ coord' = [coord EXCEPT !.segs[m.seg].end = m.length]
  /\ UNCHANGED <<node, prod, read, msgs, sure, dead, faults>>

(* Every replica is told the end, again and again, until it has answered. `whole`: that all have it. *)
AskEnd(s, n) ==
  /\ s \in 1..Last /\ Decided(s) /\ n \in Seg(s).nodes
  /\ n \notin Seg(s).ended \/ Whole(s)
  /\ ~("end_not_retried" \in Bugs /\ Seg(s).asked)
  /\ Send({[type |-> "end", seg |-> s, to |-> n, end |-> Seg(s).end,
            known |-> IF Whole(s) THEN Seg(s).end ELSE Seg(s).known]})
  /\ msgs' # msgs
  /\ coord' = [coord EXCEPT !.segs[s].asked = "end_not_retried" \in Bugs]
  /\ UNCHANGED <<node, prod, read, sure, dead, faults>>

Ended(m) ==
  /\ m.type = "ended" /\ m.end = Seg(m.seg).end /\ m.from \notin Seg(m.seg).ended
  /\ coord' = [coord EXCEPT !.segs[m.seg].ended = @ \cup {m.from}]
  /\ UNCHANGED <<node, prod, read, msgs, sure, dead, faults>>

(* A replica that is gone is replaced by a node that has copied the segment from another one. *)
Replace(s, gone, new) ==
  /\ s \in 1..Last /\ Decided(s) /\ gone \in Seg(s).nodes \cap dead /\ new \in Alive \ Seg(s).nodes
  /\ \E peer \in Seg(s).nodes \cap Alive :
       /\ node[peer][s].synced >= Seg(s).end
       /\ node' = [node EXCEPT ![new][s] = [state |-> "sealed", log |-> SubSeq(node[peer][s].log, 1, Seg(s).end),
                                            synced |-> Seg(s).end, seen |-> Max(0, Seg(s).known)]]
  /\ coord' = [coord EXCEPT !.segs[s].nodes = (@ \ {gone}) \cup {new}, !.segs[s].ended = @ \cup {new}]
  /\ UNCHANGED <<prod, read, msgs, sure, dead, faults>>

(* A new segment when there is none, or when everything below it is safe and known. *)
MayFollow ==
  IF Last = 0 THEN TRUE
  ELSE Decided(Last) /\ (Seg(Last).known = Seg(Last).end \/ Whole(Last) \/ "follow_unsafe" \in Bugs)
(* Ghost: whoever writes after them relies on the entries of the last segment. *)
Relied ==
  IF Last = 0 THEN sure ELSE IF Len(sure) >= Seg(Last).first + Seg(Last).end THEN sure
  ELSE sure \o SubSeq(At(CHOOSE n \in Seg(Last).nodes \cap Alive : Len(At(n, Last).log) >= Seg(Last).end, Last).log,
                      Len(sure) - Seg(Last).first + 1, Seg(Last).end)
NewSegment(p, place) ==
  /\ prod[p].phase = "asking" /\ prod[p].token = coord.token
  /\ MayFollow /\ Last < Segments
  /\ place \subseteq Alive /\ Cardinality(place) = Replicas
  /\ coord' = [coord EXCEPT !.segs = Append(@, [nodes |-> place, token |-> prod[p].token, end |-> Undecided, known |-> -1,
                                                ended |-> {}, asked |-> FALSE,
                                                first |-> IF Last = 0 THEN 0 ELSE Seg(Last).first + Seg(Last).end])]
  /\ prod' = [prod EXCEPT ![p].phase = "writing", ![p].seg = Last + 1, ![p].sent = 0, ![p].done = 0,
                          ![p].acked = IF "acks_kept" \in Bugs THEN @ ELSE [n \in Nodes |-> 0]]
  /\ sure' = Relied
  /\ UNCHANGED <<node, read, msgs, dead, faults>>

-----------------------------------------------------------------------------
(* A node: each step is durable before its answer leaves. *)

Put(n, s, r) == node' = [node EXCEPT ![n][s] = r]

TakeAppend(n, m) ==
  /\ m.type = "append" /\ m.to = n
  /\ LET r == At(n, m.seg) IN
     IF r.state \in {"none", "open"}
     THEN /\ m.index <= Len(r.log) + 1
          /\ LET log == IF m.index = Len(r.log) + 1 THEN Append(r.log, m.entry) ELSE r.log
                 synced == IF "ack_before_fsync" \in Bugs THEN r.synced ELSE Len(log)
             IN Put(n, m.seg, [state |-> "open", log |-> log, synced |-> synced, seen |-> Max(r.seen, Min(m.known, Len(log)))])
          /\ Send({[type |-> "ack", seg |-> m.seg, from |-> n, index |-> m.index]})
     ELSE /\ Send({[type |-> "closed", seg |-> m.seg, from |-> n]})
          /\ UNCHANGED node
  /\ <<node', msgs'>> # <<node, msgs>>
  /\ UNCHANGED <<coord, prod, read, sure, dead, faults>>

(* The committed length of a log that has gone quiet. *)
TakeKnown(n, m) ==
  /\ m.type = "known" /\ m.to = n
  /\ At(n, m.seg).seen < Min(m.known, Len(At(n, m.seg).log))
  /\ Put(n, m.seg, [At(n, m.seg) EXCEPT !.seen = Min(m.known, Len(At(n, m.seg).log))])
  /\ UNCHANGED <<coord, prod, read, msgs, sure, dead, faults>>

(* Fence and report are one step. States only move forward. *)
TakeFence(n, m) ==
  /\ m.type = "fence" /\ m.to = n
  /\ LET r == At(n, m.seg) IN
     /\ r.state # "sealed" \/ "suspend_after_seal" \in Bugs
     /\ Put(n, m.seg, IF "unfenced_reply_counted" \in Bugs THEN r ELSE [r EXCEPT !.state = "fenced"])
     /\ Send({[type |-> "fenced", seg |-> m.seg, from |-> n, length |-> Len(r.log)]})
  /\ <<node', msgs'>> # <<node, msgs>>
  /\ UNCHANGED <<coord, prod, read, sure, dead, faults>>

(* Truncated to the end, or filled up from another replica; then sealed. *)
TakeEnd(n, m) ==
  /\ m.type = "end" /\ m.to = n
  /\ LET r == At(n, m.seg)
         full == {q \in Alive : Len(At(q, m.seg).log) >= m.end}
         log == IF Len(r.log) >= m.end THEN r.log ELSE At(CHOOSE q \in full : TRUE, m.seg).log
     IN /\ Len(r.log) >= m.end \/ full # {}
        /\ Put(n, m.seg, IF r.state = "sealed" THEN [r EXCEPT !.seen = Max(@, Min(m.known, Len(r.log)))]
                         ELSE [state |-> "sealed", log |-> SubSeq(log, 1, m.end), synced |-> m.end,
                               seen |-> Max(Min(r.seen, m.end), m.known)])
        /\ Send({[type |-> "ended", seg |-> m.seg, from |-> n, end |-> m.end]})
  /\ <<node', msgs'>> # <<node, msgs>>
  /\ UNCHANGED <<coord, prod, read, sure, dead, faults>>

-----------------------------------------------------------------------------
(* A producer. *)

Writing(p) == prod[p].phase = "writing"
First(p) == Seg(prod[p].seg).first

Write(p) ==
  /\ Writing(p) /\ First(p) + prod[p].sent < Events
  /\ LET i == prod[p].sent + 1 IN
     /\ prod' = [prod EXCEPT ![p].sent = i]
     /\ Send({[type |-> "append", seg |-> prod[p].seg, to |-> n, index |-> i, known |-> prod[p].done,
               entry |-> [event |-> First(p) + i, by |-> p]] : n \in Seg(prod[p].seg).nodes})
  /\ UNCHANGED <<coord, node, read, sure, dead, faults>>

(* Committed is what all replicas have acknowledged. *)
TakeAck(p, m) ==
  /\ m.type = "ack" /\ Writing(p) /\ m.seg = prod[p].seg /\ m.index > prod[p].acked[m.from]
  /\ LET acked == [prod[p].acked EXCEPT ![m.from] = m.index]
         done == Min(prod[p].sent, Least({acked[n] : n \in Seg(m.seg).nodes}))
         entries == [i \in 1..done |-> [event |-> First(p) + i, by |-> p]]
     IN /\ prod' = [prod EXCEPT ![p].acked = acked, ![p].done = done]
        /\ sure' = IF First(p) + done > Len(sure) THEN SubSeq(sure, 1, First(p)) \o entries ELSE sure
  /\ UNCHANGED <<coord, node, read, msgs, dead, faults>>

Publish(p) ==
  /\ Writing(p) /\ prod[p].done > 0
  /\ Send({[type |-> "known", seg |-> prod[p].seg, to |-> n, known |-> prod[p].done] : n \in Seg(prod[p].seg).nodes})
  /\ msgs' # msgs
  /\ UNCHANGED <<coord, node, prod, read, sure, dead, faults>>

(* Out of patience, or told that the segment is closed: end it, ask for another. *)
GiveUp(p) ==
  /\ Writing(p)
  /\ IF \E m \in msgs : m.type = "closed" /\ m.seg = prod[p].seg THEN UNCHANGED faults ELSE Fault
  /\ prod' = [prod EXCEPT ![p].phase = "asking"]
  /\ Send({[type |-> "close", seg |-> prod[p].seg, end |-> prod[p].done]})
  /\ UNCHANGED <<coord, node, read, sure, dead>>

(* It is told that somebody else is the owner, perhaps long after. *)
StandDown(p) ==
  /\ prod[p].phase \in {"asking", "writing"} /\ prod[p].token # coord.token
  /\ prod' = [prod EXCEPT ![p] = Away]
  /\ UNCHANGED <<coord, node, read, msgs, sure, dead, faults>>

-----------------------------------------------------------------------------
(* The environment: a consumer, crashes, losses. *)

Visible(n, s) ==
  LET r == At(n, s) IN IF "last_entry_served" \in Bugs THEN Len(r.log) ELSE Min(r.seen, Len(r.log))

Consume(n) ==
  /\ n \in Alive
  /\ \E s \in 1..Last :
       /\ n \in Seg(s).nodes
       /\ LET i == Len(read) - Seg(s).first + 1 IN
          /\ i >= 1 /\ i <= Visible(n, s)
          /\ read' = Append(read, At(n, s).log[i])
          /\ sure' = IF Len(sure) < Len(read) + 1 THEN Append(sure, At(n, s).log[i]) ELSE sure
  /\ UNCHANGED <<coord, node, prod, msgs, dead, faults>>

Sync(n, s) ==
  /\ At(n, s).synced < Len(At(n, s).log)
  /\ Put(n, s, [At(n, s) EXCEPT !.synced = Len(At(n, s).log)])
  /\ UNCHANGED <<coord, prod, read, msgs, sure, dead, faults>>

(* What was not synced is lost; half a record may be left behind it. *)
CrashNode(n) ==
  /\ n \in Alive /\ Fault
  /\ node' = [node EXCEPT ![n] = [s \in 1..Segments |->
       LET r == node[n][s]
           kept == SubSeq(r.log, 1, r.synced)
       IN IF "torn_tail_trusted" \in Bugs /\ r.state = "open"
          THEN [r EXCEPT !.log = Append(kept, Torn), !.synced = r.synced + 1, !.seen = 0]
          ELSE [r EXCEPT !.log = kept, !.seen = 0]]]
  /\ node' # node
  /\ UNCHANGED <<coord, prod, read, msgs, sure, dead>>

CrashProducer(p) ==
  /\ prod[p].phase # "away" /\ Fault
  /\ prod' = [prod EXCEPT ![p] = Away]
  /\ UNCHANGED <<coord, node, read, msgs, sure, dead>>

LoseDisk(n) ==
  /\ n \in Alive /\ Cardinality(dead) < MaxDead /\ Fault
  /\ dead' = dead \cup {n}
  /\ UNCHANGED <<coord, node, prod, read, msgs, sure>>

LoseMessage(m) ==
  /\ m.type \in {"append", "end", "fence", "ended", "ack"} /\ Fault
  /\ msgs' = msgs \ {m}
  /\ UNCHANGED <<coord, node, prod, read, sure, dead>>

-----------------------------------------------------------------------------
Coordinator ==
  \/ \E p \in Producers : Grant(p) \/ \E place \in SUBSET Nodes : NewSegment(p, place)
  \/ \E n \in Nodes : AskFence(n) \/ \E s \in 1..Last : AskEnd(s, n)
  \/ \E m \in msgs : CloseByProducer(m) \/ CloseByFence(m) \/ Ended(m)
  \/ \E s \in 1..Last, gone, new \in Nodes : Replace(s, gone, new)
Node == \E n \in Alive, m \in msgs : TakeAppend(n, m) \/ TakeKnown(n, m) \/ TakeFence(n, m) \/ TakeEnd(n, m)
Producer ==
  \E p \in Producers : Write(p) \/ Publish(p) \/ GiveUp(p) \/ StandDown(p) \/ \E m \in msgs : TakeAck(p, m)
Environment ==
  \/ \E n \in Nodes : Consume(n) \/ CrashNode(n) \/ LoseDisk(n) \/ \E s \in 1..Segments : Sync(n, s)
  \/ \E p \in Producers : CrashProducer(p)
  \/ \E m \in msgs : LoseMessage(m)

Next == Coordinator \/ Node \/ Producer \/ Environment
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Laws. *)

SegmentOf(i) == CHOOSE s \in 1..Last : Seg(s).first < i /\ (s = Last \/ i <= Seg(s + 1).first)
Holds(n, s, i) ==
  LET k == i - Seg(s).first IN k <= At(n, s).synced /\ At(n, s).log[k] = sure[i]

(* Every replica of its segment that is not lost has it on disk, at its place. *)
CommitDurability ==
  \A i \in 1..Len(sure) : LET s == SegmentOf(i) IN
    /\ Decided(s) => i - Seg(s).first <= Seg(s).end
    /\ \A n \in Seg(s).nodes \cap Alive : Holds(n, s, i)
    /\ Cardinality(dead) < Replicas => Seg(s).nodes \cap Alive # {}

(* What is read is committed, is event after event, and never anything else afterwards. *)
ReadCommitted == Len(read) <= Len(sure) /\ \A i \in 1..Len(read) : read[i] = sure[i]
InOrderOnce == \A i \in 1..Len(sure) : sure[i].event = i
NoWithdrawnRead == [][\A i \in 1..Len(sure) : i <= Len(sure') /\ sure'[i] = sure[i]]_sure

(* Two producers may believe to be the owner; only one of them can still commit. *)
SingleActiveProducer ==
  \A s \in 1..Last : ~Decided(s) => s = Last
SealedOnce == [][\A s \in 1..Len(coord.segs) : Decided(s) => coord'.segs[s].end = coord.segs[s].end]_coord
ForwardOnly == [][\A n \in Nodes, s \in 1..Segments : Rank(node'[n][s].state) >= Rank(node[n][s].state)]_node
SealedAlike ==
  \A s \in 1..Last : \A n \in Seg(s).nodes :
    At(n, s).state = "sealed" => Decided(s) /\ Len(At(n, s).log) = Seg(s).end

=============================================================================
