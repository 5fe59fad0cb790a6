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
(* the end. When a segment is taken over its replicas are fenced; what one *)
(* of them has then includes all that is committed, and may include more.  *)
(* That may become the end as soon as enough nodes have it, by copying if  *)
(* a replica is gone. So an end, once decided, is on disk in enough places *)
(* and can be read and built upon.                                         *)
(*                                                                         *)
(* A node remembers, with its identity, the highest segment that it ever   *)
(* had something of, or was told is trimmed. Up to there it never begins a *)
(* replica: an append is refused, and a replica that is not there is lost, *)
(* not empty.                                                              *)
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
  Mistrust,      \* whether the coordinator may take a node for lost that is only late
  Losses,        \* kinds of messages that may be lost; the others may only be late
  Hurts,         \* what may become of a replica: {"missing", "damaged"}
  Trimming,      \* whether what was read may be dropped
  Bugs

VARIABLES
  coord,     \* durable: the segments, the token of the log's owner, and how many segments are trimmed
  node,      \* [Nodes -> by segment: what was written, how much is on disk, and how much known to be committed]
  held,      \* [Nodes -> the highest segment that it had something of], as durable as its identity
  prod,      \* [Producers -> what a producer knows; volatile]
  read,      \* what a consumer has read: a sequence of entries
  msgs,      \* what was sent
  sure,      \* ghost: the entries that were called committed
  dead,      \* nodes whose disk is lost; who comes back with another disk is another node
  faults

vars == <<coord, node, held, prod, read, msgs, sure, dead, faults>>

Undecided == -1
Unheard == -1
Torn == [event |-> 0, by |-> "torn"]
Nothing == [state |-> "none", log |-> <<>>, synced |-> 0, seen |-> 0]
Away == [phase |-> "away", token |-> 0, seg |-> 0, nodes |-> {}, sent |-> 0, acked |-> [n \in Nodes |-> 0],
         done |-> 0]

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Least(S) == CHOOSE x \in S : \A y \in S : x <= y
Highest(S) == CHOOSE x \in S : \A y \in S : x >= y
Fault == faults < MaxFaults /\ faults' = faults + 1
Rank(state) == CASE state = "none" -> 0 [] state = "open" -> 1 [] state = "fenced" -> 2 [] state = "sealed" -> 3
                 [] state = "damaged" -> 4
Bug(name) == name \in Bugs

Init ==
  /\ coord = [segs |-> <<>>, token |-> 0, trimmed |-> 0]
  /\ node = [n \in Nodes |-> [s \in 1..Segments |-> Nothing]] /\ held = [n \in Nodes |-> 0]
  /\ prod = [p \in Producers |-> Away]
  /\ read = <<>> /\ msgs = {} /\ sure = <<>> /\ dead = {} /\ faults = 0

Last == Len(coord.segs)
Seg(s) == coord.segs[s]
Decided(s) == Seg(s).end # Undecided
Alive == Nodes \ dead
At(n, s) == node[n][s]
Send(new) == msgs' = msgs \cup new
New(new) == ~(new \subseteq msgs)
Sent(type) == {m \in msgs : m.type = type}
Heard(n, type) == IF n \in Alive THEN {m \in Sent(type) : m.to = n} ELSE {}
TakenOver(s) == Seg(s).token # coord.token
Missing(n, s) == At(n, s).state = "none" /\ s <= held[n]
Good(n, s) == n \in Alive /\ At(n, s).state # "damaged" /\ ~Missing(n, s)
Known(s) == s <= Last /\ s > coord.trimmed
(* Of whom the coordinator knows, or believes, that it has lost its replica. *)
Suspected(s) ==
  IF Mistrust THEN Seg(s).nodes ELSE {n \in Seg(s).nodes : n \in dead \/ At(n, s).state = "damaged"}
Sound(s) == {n \in Alive : At(n, s).state # "damaged"}
Reach(n, s) == held' = [held EXCEPT ![n] = Max(@, s)]

-----------------------------------------------------------------------------
(* The coordinator: each step is one durable transaction. *)

(* Somebody becomes the owner, with a token above all others; a fault if there is one already. *)
Grant(p) ==
  /\ prod[p].phase = "away"
  /\ IF \A q \in Producers : prod[q].phase = "away" THEN UNCHANGED faults ELSE Fault
  /\ coord' = [coord EXCEPT !.token = @ + 1]
  /\ prod' = [prod EXCEPT ![p] = [Away EXCEPT !.phase = "asking", !.token = coord.token + 1]]
  /\ UNCHANGED <<node, held, read, msgs, sure, dead>>

(* A new segment when there is none before it, or when the end of that one is decided. *)
NewSegment(p, place) ==
  /\ prod[p].phase = "asking" /\ prod[p].token = coord.token
  /\ IF Last = 0 THEN TRUE ELSE Decided(Last)
  /\ Last < Segments /\ place \subseteq Alive /\ Cardinality(place) = Replicas
  /\ coord' = [coord EXCEPT !.segs = Append(@,
       [nodes |-> place, token |-> prod[p].token, end |-> Undecided, ended |-> {}, asked |-> {},
        fenced |-> [n \in Nodes |-> Unheard],
        first |-> IF Last = 0 THEN 0 ELSE Seg(Last).first + Seg(Last).end])]
  /\ prod' = [prod EXCEPT ![p].phase = "writing", ![p].seg = Last + 1, ![p].nodes = place,
                          ![p].sent = 0, ![p].done = 0,
                          ![p].acked = IF Bug("acks_kept") THEN @ ELSE [n \in Nodes |-> 0]]
  /\ UNCHANGED <<node, held, read, msgs, sure, dead, faults>>

MayDecide(s) == ~Decided(s) \/ Bug("close_decided_twice")

(* Ghost: a decided end makes what is below it sure. *)
Decide(s, end, holders) ==
  LET entries == SubSeq(At(CHOOSE n \in holders : Len(At(n, s).log) >= end, s).log, 1, end)
      upto == Seg(s).first + end
  IN /\ coord' = [coord EXCEPT !.segs[s].end = end, !.segs[s].nodes = holders]
     /\ sure' = IF upto > Len(sure) THEN SubSeq(sure, 1, Seg(s).first) \o entries ELSE sure
     /\ UNCHANGED <<node, held, prod, read, msgs, dead, faults>>

(* The producer ends its segment: what it has committed, all replicas have. *)
DecideByProducer == \E m \in Sent("close") :
  /\ MayDecide(m.seg) /\ Seg(m.seg).end # m.end
  /\ Decide(m.seg, m.end, Seg(m.seg).nodes)

(* The open segment of a former owner is fenced: asked for again and again, until its end is decided. *)
AskFence(n) ==
  /\ Last > 0 /\ ~Decided(Last) /\ TakenOver(Last) /\ n \in Seg(Last).nodes
  /\ LET new == {[type |-> "fence", seg |-> Last, to |-> n]} IN New(new) /\ Send(new)
  /\ UNCHANGED <<coord, node, held, prod, read, sure, dead, faults>>

(* A fenced replica may grow by copying: the longest that it told is the latest. *)
TakeFenced == \E m \in Sent("fenced") :
  /\ Seg(m.seg).fenced[m.from] < m.length /\ ~Decided(m.seg)
  /\ coord' = [coord EXCEPT !.segs[m.seg].fenced[m.from] = m.length]
  /\ UNCHANGED <<node, held, prod, read, msgs, sure, dead, faults>>

(* In the place of a replica that does not answer, another node takes a fenced copy of what one has that did. *)
AskCopy(from, to) ==
  /\ Last > 0 /\ ~Decided(Last) /\ from \in Seg(Last).nodes \cap Sound(Last) /\ Seg(Last).fenced[from] # Unheard
  /\ Suspected(Last) \ {from} # {} /\ to \in Sound(Last) \ Seg(Last).nodes
  /\ LET new == {[type |-> "copy", seg |-> Last, to |-> to, from |-> from, length |-> Seg(Last).fenced[from]]}
     IN New(new) /\ Send(new)
  /\ UNCHANGED <<coord, node, held, prod, read, sure, dead, faults>>

(* What a fenced replica has may be the end once enough nodes have it. *)
DecideByFence(s, holders, n) ==
  /\ s = Last /\ MayDecide(s) /\ TakenOver(s)
  /\ LET told == Seg(s).fenced IN
     /\ n \in holders \cap Seg(s).nodes
     /\ \A h \in holders : told[h] # Unheard /\ told[h] >= told[n]
     /\ Cardinality(holders) = IF Bug("decided_alone") THEN 1 ELSE Replicas
     /\ Seg(s).end # told[n]
     /\ Decide(s, told[n], holders)

(* Every replica is told the end, again and again, until it has answered. *)
AskEnd(s, n) ==
  /\ Known(s) /\ Decided(s) /\ n \in Seg(s).nodes \ Seg(s).ended
  /\ ~(Bug("end_not_retried") /\ n \in Seg(s).asked)
  /\ LET new == {[type |-> "end", seg |-> s, to |-> n, end |-> Seg(s).end]} IN New(new) /\ Send(new)
  /\ coord' = IF Bug("end_not_retried") THEN [coord EXCEPT !.segs[s].asked = @ \cup {n}] ELSE coord
  /\ UNCHANGED <<node, held, prod, read, sure, dead, faults>>

TakeEnded == \E m \in Sent("ended") :
  /\ m.end = Seg(m.seg).end /\ m.from \in Seg(m.seg).nodes \ Seg(m.seg).ended
  /\ coord' = [coord EXCEPT !.segs[m.seg].ended = @ \cup {m.from}]
  /\ UNCHANGED <<node, held, prod, read, msgs, sure, dead, faults>>

(* A copy of a finished segment, to a node that then has it, whatever it had before. One that ends with nothing
   needs nobody to copy it from: those that had it may all be gone. *)
Sealed(s, to, gone) ==
  \/ \E peer \in (Seg(s).ended \cap Alive) \ {gone} :
       /\ At(peer, s).state = "sealed"
       /\ node' = [node EXCEPT ![to][s] = [At(peer, s) EXCEPT !.seen = Seg(s).end]]
       /\ Reach(to, s)
  \/ /\ Seg(s).end = 0 /\ Sound(s) # {}
     /\ node' = [node EXCEPT ![to][s] = [state |-> "sealed", log |-> <<>>, synced |-> 0, seen |-> 0]]
     /\ Reach(to, s)
  \/ Bug("replaced_before_copied") /\ UNCHANGED <<node, held>>

(* A replica that seems gone is replaced by a node that has copied the finished segment. *)
Replace(s, gone, new) ==
  /\ Known(s) /\ Decided(s) /\ gone \in Suspected(s) /\ new \in Sound(s) \ Seg(s).nodes
  /\ Sealed(s, new, gone)
  /\ coord' = [coord EXCEPT !.segs[s].nodes = (@ \ {gone}) \cup {new}, !.segs[s].ended = (@ \ {gone}) \cup {new}]
  /\ UNCHANGED <<prod, read, msgs, sure, dead, faults>>

(* A replica that says that it is damaged is copied anew, to where it is. *)
Repair(s, n) ==
  /\ Known(s) /\ Decided(s) /\ n \in Seg(s).nodes \cap Alive /\ At(n, s).state = "damaged"
  /\ Sealed(s, n, n)
  /\ coord' = [coord EXCEPT !.segs[s].ended = @ \cup {n}]
  /\ UNCHANGED <<prod, read, msgs, sure, dead, faults>>

(* The first segment goes, once it is sealed everywhere and nobody needs it; the last one stays. *)
Trim ==
  /\ Trimming /\ coord.trimmed + 1 < Last
  /\ LET s == coord.trimmed + 1 IN
     /\ Seg(s).ended = Seg(s).nodes
     /\ Seg(s + 1).first <= Len(read)
     /\ coord' = [coord EXCEPT !.trimmed = s]
  /\ UNCHANGED <<node, held, prod, read, msgs, sure, dead, faults>>

-----------------------------------------------------------------------------
(* A node: each step is durable before its answer leaves. *)

Put(n, s, r) == node' = [node EXCEPT ![n][s] = r]
Effect == <<node', held', msgs'>> # <<node, held, msgs>>
Ack(n, s, index) == [type |-> "ack", seg |-> s, from |-> n, index |-> index]

(* Written, and answered once it is on disk. Only what the node never had may be begun here. *)
TakeAppend(n) == \E m \in Heard(n, "append") :
  /\ LET r == At(n, m.seg) IN
     IF r.state = "open" \/ (r.state = "none" /\ (m.seg > held[n] \/ Bug("begun_anew")))
     THEN /\ m.index <= Len(r.log) + 1
          /\ LET log == IF m.index = Len(r.log) + 1 THEN Append(r.log, m.entry) ELSE r.log
             IN Put(n, m.seg, [r EXCEPT !.state = "open", !.log = log, !.seen = Max(@, Min(m.known, Len(log)))])
          /\ Reach(n, m.seg)
          /\ Send(IF m.index <= r.synced \/ Bug("ack_before_fsync") THEN {Ack(n, m.seg, m.index)} ELSE {})
     ELSE Send({[type |-> "closed", seg |-> m.seg]}) /\ UNCHANGED <<node, held>>
  /\ Effect
  /\ UNCHANGED <<coord, prod, read, sure, dead, faults>>

(* What was written is on disk: now it is acknowledged. *)
Sync(n, s) ==
  /\ n \in Alive /\ At(n, s).state = "open" /\ At(n, s).synced < Len(At(n, s).log)
  /\ Put(n, s, [At(n, s) EXCEPT !.synced = Len(At(n, s).log)])
  /\ Send({Ack(n, s, Len(At(n, s).log))})
  /\ UNCHANGED <<coord, held, prod, read, sure, dead, faults>>

(* The committed length of a log that has gone quiet. *)
TakeKnown(n) == \E m \in Heard(n, "known") :
  /\ At(n, m.seg).seen < Min(m.known, Len(At(n, m.seg).log))
  /\ Put(n, m.seg, [At(n, m.seg) EXCEPT !.seen = Min(m.known, Len(At(n, m.seg).log))])
  /\ UNCHANGED <<coord, held, prod, read, msgs, sure, dead, faults>>

(* What was here and is not there is damaged, as it is found out now. *)
FoundMissing(n, s) == Put(n, s, [Nothing EXCEPT !.state = "damaged"]) /\ UNCHANGED <<held, msgs>>

(* Fence and report are one step, behind a sync. States only move forward; what is damaged has no word. *)
TakeFence(n) == \E m \in Heard(n, "fence") :
  /\ LET r == At(n, m.seg) IN
     IF Missing(n, m.seg) /\ ~Bug("missing_is_empty") THEN FoundMissing(n, m.seg)
     ELSE /\ r.state # "damaged" /\ (r.state # "sealed" \/ Bug("suspend_after_seal"))
          /\ Put(n, m.seg, IF Bug("unfenced_reply_counted") THEN r
                           ELSE [r EXCEPT !.state = "fenced",
                                          !.synced = IF Bug("told_before_fsync") THEN @ ELSE Len(r.log)])
          /\ Reach(n, m.seg)
          /\ Send({[type |-> "fenced", seg |-> m.seg, from |-> n, length |-> Len(r.log)]})
  /\ Effect
  /\ UNCHANGED <<coord, prod, read, sure, dead, faults>>

(* A fenced copy of a fenced replica, unless that one was cut since, because the end is decided. A copy that
   was made of a shorter one, which is gone by now, is made longer. Whoever has lost its copy makes no other:
   it may have told more. *)
TakeCopy(n) == \E m \in Heard(n, "copy") :
  /\ m.from \in Alive /\ Len(At(m.from, m.seg).log) >= m.length
  /\ LET r == At(n, m.seg)
         log == IF m.length > Len(r.log) THEN SubSeq(At(m.from, m.seg).log, 1, m.length) ELSE r.log
     IN IF Missing(n, m.seg) /\ ~Bug("copied_anew") THEN FoundMissing(n, m.seg) ELSE
        /\ r.state \in {"fenced", "none"}
        /\ LET kept == IF Bug("half_copy_counted") THEN SubSeq(log, 1, Len(log) - 1) ELSE log
           IN Put(n, m.seg, [r EXCEPT !.state = "fenced", !.log = kept, !.synced = Len(kept)])
        /\ Reach(n, m.seg)
        /\ Send({[type |-> "fenced", seg |-> m.seg, from |-> n, length |-> Len(log)]})
  /\ Effect
  /\ UNCHANGED <<coord, prod, read, sure, dead, faults>>

(* Truncated to the end and sealed; everything below it can be read. Where a segment ends with nothing,
   nothing is missing. *)
TakeEnd(n) == \E m \in Heard(n, "end") :
  /\ LET r == At(n, m.seg) IN
     IF Missing(n, m.seg) /\ m.end > 0 THEN FoundMissing(n, m.seg)
     ELSE /\ r.state # "damaged" /\ Len(r.log) >= m.end
          /\ Put(n, m.seg, IF r.state = "sealed" THEN r
                           ELSE [state |-> "sealed", log |-> SubSeq(r.log, 1, m.end), synced |-> m.end, seen |-> m.end])
          /\ Reach(n, m.seg)
          /\ Send({[type |-> "ended", seg |-> m.seg, from |-> n, end |-> m.end]})
  /\ Effect
  /\ UNCHANGED <<coord, prod, read, sure, dead, faults>>

(* A node hears which segments are trimmed, perhaps late. It forgets their records, never that they were. *)
Drop(n) ==
  /\ n \in Alive
  /\ node' = [node EXCEPT ![n] = [s \in 1..Segments |-> IF s <= coord.trimmed THEN Nothing ELSE @[s]]]
  /\ held' = IF Bug("trimmed_forgotten")
             THEN [held EXCEPT ![n] = Highest({s \in 1..Segments : node'[n][s].state # "none"} \cup {0})]
             ELSE [held EXCEPT ![n] = Max(@, coord.trimmed)]
  /\ <<node', held'>> # <<node, held>>
  /\ UNCHANGED <<coord, prod, read, msgs, sure, dead, faults>>

-----------------------------------------------------------------------------
(* A producer. *)

Writing(p) == prod[p].phase = "writing"
First(p) == Seg(prod[p].seg).first
Entry(p, i) == [event |-> First(p) + i, by |-> p]

Write(p) ==
  /\ Writing(p) /\ First(p) + prod[p].sent < Events
  /\ LET i == prod[p].sent + 1 IN
     /\ prod' = [prod EXCEPT ![p].sent = i]
     /\ Send({[type |-> "append", seg |-> prod[p].seg, to |-> n, index |-> i, known |-> prod[p].done,
               entry |-> Entry(p, i)] : n \in prod[p].nodes})
  /\ UNCHANGED <<coord, node, held, read, sure, dead, faults>>

(* Committed is what all replicas have acknowledged. *)
TakeAck(p) == \E m \in Sent("ack") :
  /\ Writing(p) /\ m.seg = prod[p].seg /\ m.index > prod[p].acked[m.from]
  /\ LET acked == [prod[p].acked EXCEPT ![m.from] = m.index]
         done == Max(prod[p].done, Min(prod[p].sent, Least({acked[n] : n \in prod[p].nodes})))
     IN /\ prod' = [prod EXCEPT ![p].acked = acked, ![p].done = done]
        /\ sure' = IF First(p) + done > Len(sure)
                   THEN SubSeq(sure, 1, First(p)) \o [i \in 1..done |-> Entry(p, i)] ELSE sure
  /\ UNCHANGED <<coord, node, held, read, msgs, dead, faults>>

Publish(p) ==
  /\ Writing(p) /\ prod[p].done > 0
  /\ LET new == {[type |-> "known", seg |-> prod[p].seg, to |-> n, known |-> prod[p].done] :
                   n \in prod[p].nodes}
     IN New(new) /\ Send(new)
  /\ UNCHANGED <<coord, node, held, prod, read, sure, dead, faults>>

(* Out of patience, or told that the segment is closed: end it, ask for another. *)
GiveUp(p) ==
  /\ Writing(p)
  /\ IF [type |-> "closed", seg |-> prod[p].seg] \in msgs THEN UNCHANGED faults ELSE Fault
  /\ prod' = [prod EXCEPT ![p].phase = "asking"]
  /\ Send({[type |-> "close", seg |-> prod[p].seg, end |-> prod[p].done]})
  /\ UNCHANGED <<coord, node, held, read, sure, dead>>

(* It is told that somebody else is the owner, perhaps long after. *)
StandDown(p) ==
  /\ prod[p].phase \in {"asking", "writing"} /\ prod[p].token # coord.token
  /\ prod' = [prod EXCEPT ![p] = Away]
  /\ UNCHANGED <<coord, node, held, read, msgs, sure, dead, faults>>

-----------------------------------------------------------------------------
(* The environment: a consumer, crashes, losses. *)

Visible(n, s) ==
  LET r == At(n, s) IN
  IF Bug("last_entry_served") \/ (Bug("fenced_served") /\ r.state = "fenced") THEN Len(r.log)
  ELSE Min(r.seen, Len(r.log))

(* From any node, as long as it lives: whoever reads may have asked the coordinator long ago. *)
Consume(n, s) ==
  /\ s <= Last /\ n \in Alive
  /\ LET i == Len(read) - Seg(s).first + 1 IN
     /\ i >= 1 /\ i <= Visible(n, s)
     /\ read' = Append(read, At(n, s).log[i])
  /\ UNCHANGED <<coord, node, held, prod, msgs, sure, dead, faults>>

(* What was not synced may be lost, and half a record may be left behind it; or it is still there, and not on
   disk for all that. *)
CrashNode(n) == \E all \in BOOLEAN :
  /\ n \in Alive /\ Fault
  /\ node' = [node EXCEPT ![n] = [s \in 1..Segments |->
       LET r == node[n][s]
           kept == IF all THEN r.log ELSE SubSeq(r.log, 1, r.synced)
           seen == IF r.state = "sealed" THEN r.seen ELSE 0
       IN IF Bug("torn_tail_trusted") /\ r.state = "open"
          THEN [r EXCEPT !.log = Append(kept, Torn), !.synced = Len(kept) + 1, !.seen = seen]
          ELSE [r EXCEPT !.log = kept, !.seen = seen]]]
  /\ node' # node
  /\ UNCHANGED <<coord, held, prod, read, msgs, sure, dead>>

(* Whatever it had heard and not decided upon is forgotten. *)
CrashCoordinator ==
  /\ Last > 0 /\ ~Decided(Last) /\ Fault
  /\ coord' = [coord EXCEPT !.segs[Last].fenced = [n \in Nodes |-> Unheard]]
  /\ coord' # coord
  /\ UNCHANGED <<node, held, prod, read, msgs, sure, dead>>

CrashProducer(p) ==
  /\ prod[p].phase # "away" /\ Fault
  /\ prod' = [prod EXCEPT ![p] = Away]
  /\ UNCHANGED <<coord, node, held, read, msgs, sure, dead>>

(* The replicas, and whoever has told, heard or not, that it has a fenced one: an end may rest on it. *)
Counted(s) ==
  Seg(s).nodes \cup (IF Decided(s) THEN {} ELSE
    {n \in Nodes : Seg(s).fenced[n] # Unheard} \cup {m.from : m \in {m \in Sent("fenced") : m.seg = s}})

(* What is lost leaves the others: the next one may go when this one has been replaced. *)
Spared(n, s) == n \in Counted(s) => \A other \in Counted(s) \ {n} : Good(other, s)

LoseDisk(n) ==
  /\ n \in Alive /\ Cardinality(dead) < MaxDead /\ Fault
  /\ \A s \in coord.trimmed + 1 .. Last : Spared(n, s)
  /\ dead' = dead \cup {n}
  /\ UNCHANGED <<coord, node, held, prod, read, msgs, sure>>

(* The files of a replica are gone, and its node does not know yet; or it knows that they cannot be read. *)
Hurt(n, s) == \E how \in Hurts :
  /\ n \in Alive /\ Known(s) /\ At(n, s).state \notin {"none", "damaged"} /\ Spared(n, s) /\ Fault
  /\ node' = [node EXCEPT ![n][s] =
       IF how = "missing" THEN Nothing ELSE [Nothing EXCEPT !.state = "damaged"]]
  /\ UNCHANGED <<coord, held, prod, read, msgs, sure, dead>>

LoseMessage == \E m \in msgs :
  /\ m.type \in Losses /\ Fault
  /\ msgs' = msgs \ {m}
  /\ UNCHANGED <<coord, node, held, prod, read, sure, dead>>

-----------------------------------------------------------------------------
Coordinator ==
  \/ \E p \in Producers : Grant(p) \/ \E place \in SUBSET Nodes : NewSegment(p, place)
  \/ \E n \in Nodes : AskFence(n) \/ \E to \in Nodes : AskCopy(n, to)
  \/ \E s \in 1..Segments, n \in Nodes :
       \/ AskEnd(s, n)
       \/ \E holders \in SUBSET Nodes : DecideByFence(s, holders, n)
       \/ \E new \in Nodes : Replace(s, n, new)
       \/ Repair(s, n)
  \/ DecideByProducer \/ TakeFenced \/ TakeEnded \/ Trim
Node == \E n \in Nodes :
  \/ TakeAppend(n) \/ TakeKnown(n) \/ TakeFence(n) \/ TakeCopy(n) \/ TakeEnd(n) \/ Drop(n)
  \/ \E s \in 1..Segments : Sync(n, s)
Producer == \E p \in Producers : Write(p) \/ Publish(p) \/ GiveUp(p) \/ StandDown(p) \/ TakeAck(p)
Consumer == \E n \in Nodes, s \in 1..Segments : Consume(n, s)
Environment ==
  \/ \E n \in Nodes : CrashNode(n) \/ LoseDisk(n) \/ \E s \in 1..Segments : Hurt(n, s)
  \/ \E p \in Producers : CrashProducer(p)
  \/ CrashCoordinator \/ LoseMessage

Next == Coordinator \/ Node \/ Producer \/ Consumer \/ Environment
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Laws. *)

SegmentOf(i) == CHOOSE s \in 1..Last : Seg(s).first < i /\ (s = Last \/ i <= Seg(s + 1).first)
Holds(n, s, i) ==
  LET k == i - Seg(s).first IN k <= At(n, s).synced /\ At(n, s).log[k] = sure[i]

(* Whoever is a replica of its segment, not lost and not damaged, has it on disk, at its place; and there is
   one. So it can be read after any failures that leave one of them. *)
CommitDurability ==
  \A i \in 1..Len(sure) : LET s == SegmentOf(i) IN s > coord.trimmed =>
    /\ Decided(s) => i - Seg(s).first <= Seg(s).end
    /\ \A n \in Seg(s).nodes : Good(n, s) => Holds(n, s, i)
    /\ \E n \in Seg(s).nodes : Good(n, s)
    /\ Cardinality(Seg(s).nodes) = Replicas

(* What is read is committed, event after event. *)
ReadCommitted == Len(read) <= Len(sure) /\ \A i \in 1..Len(read) : read[i] = sure[i]
InOrderOnce == \A i \in 1..Len(sure) : sure[i].event = i

(* What is committed stays, and stays what it is. *)
NoWithdrawnRead == [][\A i \in 1..Len(sure) : i <= Len(sure') /\ sure'[i] = sure[i]]_sure

(* Two producers may believe to be the owner; what the former one still calls committed lies within the end. *)
SingleActiveProducer ==
  /\ \A s \in 1..Last : ~Decided(s) => s = Last
  /\ \A p \in Producers : Writing(p) => (Decided(prod[p].seg) => prod[p].done <= Seg(prod[p].seg).end)
SealedOnce == [][\A s \in 1..Len(coord.segs) : Decided(s) => coord'.segs[s].end = coord.segs[s].end]_coord
ForwardOnly == [][\A n \in Nodes, s \in 1..Segments :
  LET before == At(n, s).state  after == node'[n][s].state IN
    \/ after \in {"none", "damaged"} \/ before = "damaged" \/ Rank(after) >= Rank(before)]_node
SealedAlike ==
  \A s \in 1..Last : \A n \in Seg(s).nodes :
    At(n, s).state = "sealed" => Decided(s) /\ Len(At(n, s).log) = Seg(s).end

-----------------------------------------------------------------------------
(* Progress: with enough nodes the log goes on, every segment that ended ends up sealed wherever it is, and
   every committed entry is read. *)

Fair ==
  /\ WF_vars(Node) /\ WF_vars(Consumer)
  /\ \A n \in Nodes : WF_vars(AskFence(n)) /\ \A to \in Nodes : WF_vars(AskCopy(n, to))
  /\ \A s \in 1..Segments, n \in Nodes :
       /\ WF_vars(AskEnd(s, n))
       /\ WF_vars(\E holders \in SUBSET Nodes : DecideByFence(s, holders, n))
       /\ WF_vars(\E new \in Nodes : Replace(s, n, new)) /\ WF_vars(Repair(s, n))
  /\ WF_vars(DecideByProducer \/ TakeFenced \/ TakeEnded)
  /\ \A p \in Producers :
       /\ WF_vars(Write(p)) /\ WF_vars(Publish(p)) /\ WF_vars(StandDown(p)) /\ WF_vars(Grant(p))
       /\ WF_vars(\E place \in SUBSET Nodes : NewSegment(p, place))
       /\ WF_vars(TakeAck(p))
       /\ WF_vars(GiveUp(p))
FairSpec == Spec /\ Fair

AllSealed == \A s \in 1..Last : Known(s) /\ Decided(s) => \A n \in Seg(s).nodes \cap Alive : At(n, s).state = "sealed"
EndsSealed == []<>AllSealed
GoesOn == <>(Len(sure) = Events)
AllRead == <>[](Len(read) = Len(sure))

=============================================================================
