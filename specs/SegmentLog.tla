----------------------------- MODULE SegmentLog -----------------------------
(***************************************************************************)
(* One log made of segments. A producer writes each segment to all of its  *)
(* replicas; what all of them have on disk is committed. Whatever goes     *)
(* wrong ends the segment: its end is decided once, by the coordinator,    *)
(* and the log goes on in a new one, on other nodes.                       *)
(*                                                                         *)
(* The log holds the events 1, 2, 3, ... of one source: whoever writes     *)
(* asks where the log ends and goes on from there. So entry i of the log   *)
(* has to be event i, for ever, whoever wrote it.                          *)
(*                                                                         *)
(* Messages are kept in a set and never leave it: they may be lost (nobody *)
(* ever takes them up), late, out of order and taken up more than once.    *)
(* Steps of coordinator, node and producer bear the names of functions of  *)
(* src/truecut/core/segment_log.py; the rest is the environment.           *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Nodes,
  Replicas,      \* copies of a segment
  Producers,
  Events,        \* how many events the source has
  Segments,      \* how many segments there may be
  MaxFaults,     \* crashes, time-outs, takeovers, lost disks in total
  Bugs

VARIABLES
  coord,     \* the coordinator's durable state: segments, and who owns the log
  node,      \* [Nodes -> what is on its disk, by segment]
  prod,      \* [Producers -> what a producer knows; volatile]
  reader,    \* what a consumer has read: a sequence of entries
  msgs,      \* everything that was ever sent
  committed, \* ghost: the entries that a producer called committed, or that lie below a decided end
  faults

vars == <<coord, node, prod, reader, msgs, committed, faults>>

Open == "open"
Fenced == "fenced"
Sealed == "sealed"
Undecided == -1
Rank(state) == CASE state = "none" -> 0 [] state = Open -> 1 [] state = Fenced -> 2 [] state = Sealed -> 3

Entry(e, p) == [event |-> e, by |-> p]
Nothing == [state |-> "none", token |-> 0, log |-> <<>>, synced |-> 0, seen |-> 0]
Idle == [phase |-> "idle", token |-> 0, seg |-> 0, first |-> 0, sent |-> 0, acked |-> [n \in Nodes |-> 0], done |-> 0]
Prefix(log, k) == SubSeq(log, 1, k)
Min(a, b) == IF a < b THEN a ELSE b
Fault == faults < MaxFaults /\ faults' = faults + 1

Init ==
  /\ coord = [segs |-> <<>>, token |-> 0]
  /\ node = [n \in Nodes |-> [s \in 1..Segments |-> Nothing]]
  /\ prod = [p \in Producers |-> Idle]
  /\ reader = <<>> /\ msgs = {} /\ committed = <<>> /\ faults = 0

Last == Len(coord.segs)
Seg(s) == coord.segs[s]
Decided(s) == Seg(s).end # Undecided
Length(s) == Seg(s).end            \* of a decided segment
Send(m) == msgs' = msgs \cup m

-----------------------------------------------------------------------------
(* The coordinator. Every step is one durable transaction. *)

(* A producer that becomes the owner gets a token above all others; the open segment is then fenced. *)
Grant(p) ==
  /\ prod[p].phase = "idle"
  /\ coord.token = 0 \/ Fault
  /\ coord.token # 0 \/ UNCHANGED faults
  /\ coord' = [coord EXCEPT !.token = @ + 1]
  /\ prod' = [prod EXCEPT ![p] = [Idle EXCEPT !.phase = "asking", !.token = coord.token + 1]]
  /\ Send(IF Last > 0 /\ ~Decided(Last)
          THEN {[type |-> "fence", seg |-> Last, to |-> n] : n \in Seg(Last).nodes} ELSE {})
  /\ UNCHANGED <<node, reader, committed>>

(* The end of the open segment, once: what its producer has committed, or what a fenced replica has. *)
Decide(s, end) ==
  /\ s = Last /\ (~Decided(s) \/ "close_decided_twice" \in Bugs)
  /\ coord' = [coord EXCEPT !.segs[s].end = end]
  /\ Send({[type |-> "end", seg |-> s, to |-> n, end |-> end] : n \in Seg(s).nodes})

CloseByProducer(m) ==
  /\ m.type = "close" /\ m.token = coord.token
  /\ Decide(m.seg, m.end)
  /\ UNCHANGED <<node, prod, reader, committed, faults>>

CloseByFence(m) ==
  /\ m.type = "fenced" /\ m.seg = Last
  /\ Seg(m.seg).token # coord.token          \* somebody else has taken over
  /\ m.final \/ "unfenced_reply_counted" \in Bugs
  /\ Decide(m.seg, m.end)
  /\ UNCHANGED <<node, prod, reader, committed, faults>>

(* A new segment, when there is none or the last one's end is decided. The same answer to the same question. *)
NewSegment(p, place) ==
  /\ prod[p].phase = "asking" /\ prod[p].token = coord.token
  /\ Last = 0 \/ Decided(Last)
  /\ Last < Segments /\ place \subseteq Nodes /\ Cardinality(place) = Replicas
  /\ LET first == IF Last = 0 THEN 0 ELSE Seg(Last).first + Length(Last)
         new == [nodes |-> place, token |-> prod[p].token, first |-> first, end |-> Undecided]
     IN /\ coord' = [coord EXCEPT !.segs = Append(@, new)]
        /\ prod' = [prod EXCEPT ![p] = [@ EXCEPT !.phase = "writing", !.seg = Last + 1, !.first = first, !.sent = 0, !.done = 0,
                                          !.acked = IF "acks_kept" \in Bugs THEN @ ELSE [n \in Nodes |-> 0]]]
  /\ UNCHANGED <<node, reader, msgs, committed, faults>>

=============================================================================
