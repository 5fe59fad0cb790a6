-------------------------------- MODULE Cut --------------------------------
(***************************************************************************)
(* A table is copied while it changes. It is read by units: half-open      *)
(* ranges of its key, each under a snapshot of its own; what was committed *)
(* meanwhile is in the log. A snapshot is a set of transactions, not a     *)
(* place in the log: a commit is written to the log first and becomes      *)
(* visible afterwards, perhaps much later. So the splice is by that set:   *)
(* for a key of the unit, events of transactions that its snapshot saw are *)
(* in the row already, and all others follow it.                           *)
(*                                                                         *)
(* The log is what the source writes: rows as they are changed, and        *)
(* commits. Transactions count in the order of their commits; a position   *)
(* is a place in the log, and a frontier that of a commit. A slot gives    *)
(* the log from where it was made, and says which transactions lie before  *)
(* that. It gives the rows of a table from where the table was published:  *)
(* what a transaction wrote before that is not sent, though it may commit  *)
(* long after. So no unit is read before all who had written have ended.   *)
(*                                                                         *)
(* A unit's hi is the last commit that its snapshot saw. Its lo is the     *)
(* last place before the first transaction that it did not see, hi at the  *)
(* latest. Both are found in the log, up to where it ended when the        *)
(* snapshot had been taken. A unit is applied by a wave that               *)
(* ends at hi or later, and its range is replayed from lo, wherever the    *)
(* cursor stands. Other units that were applied, and other tables, go on   *)
(* from the cursor in the same commit.                                     *)
(*                                                                         *)
(* A value that did not change may be absent from an event. It is taken    *)
(* from the row before, which for a changed key is another key's, perhaps  *)
(* of another unit: one that saw the change has that row no more. Then the *)
(* value is nowhere, and the unit that lacks it is read again, under a     *)
(* snapshot that sees the change.                                          *)
(*                                                                         *)
(* Steps of the backfill bear the names of functions of                    *)
(* src/truecut/core/cut.py; the rest is the source and the environment.    *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Keys,          \* 1..n, of the table that is backfilled
  Others,        \* keys of a table that streams all along
  Histories,     \* sets of transactions, each a sequence of operations; Init picks one
  Initial,       \* [Keys \cup Others -> a row]
  Bounds,        \* keys at which the first units meet
  Splits,        \* keys at which a unit may be split later on
  Workers,       \* how many units are read at a time
  SlotFirst,     \* whether the slot is there before the first transaction
  PublishedFirst,\* whether the table is published before the first transaction
  MaxFaults,     \* crashes
  MaxEditions,   \* how often the table is backfilled
  Bugs

VARIABLES
  txns,      \* the history: [transaction -> its operations]
  wal,       \* what the source has written: rows and commits
  pc,        \* [transaction -> how many of its operations are done]
  xids,      \* [transaction -> [0: its id, 1..: those of its subtransactions]]; 0: none yet
  ended,     \* transactions that are over for everybody; until then they count as running
  slot,      \* where the log begins, and a snapshot of what lies before; None: not made yet
  published, \* from where the log has the rows of the table; None: it is not published yet
  work,      \* [unit -> what a worker has of it; volatile]
  ledger,    \* [unit -> its record in the journal], durable; its domain is the plan
  sink,      \* one commit: cursor, rows, applied units, floors of those to come, edition
  faults

source == <<txns, wal, pc, xids, ended>>
vars == <<txns, wal, pc, xids, ended, slot, published, work, ledger, sink, faults>>

None == [phase |-> "none"]
NoRow == [a |-> 0, b |-> 0]
Null == -1
Missing == -2    \* nobody has this value
Absent == -3     \* it did not change, and the event does not tell it
Subs == 0..1
Bug(name) == name \in Bugs
All == Keys \cup Others
Largest(S) == CHOOSE x \in S : \A y \in S : x >= y
Low == 0                      \* below all keys
High == Largest(Keys) + 1     \* above all keys

-----------------------------------------------------------------------------
(* The source. *)

Ids == DOMAIN txns
Finished(t) == pc[t] = Len(txns[t])
Running(t) == pc[t] > 0 /\ t \notin ended
RolledBack(t) == {txns[t][i].sub : i \in {j \in 1..pc[t] : txns[t][j].op = "back"}}
IsRow(e) == e.kind # "commit"
RowsOf(t) == SelectSeq(wal, LAMBDA e : e.t = t /\ IsRow(e) /\ e.sub \notin RolledBack(t))
Holds(e) == IF e.kind = "truncate" THEN Keys ELSE {e.key, e.to}
Locked(t) == UNION {Holds(RowsOf(t)[i]) : i \in DOMAIN RowsOf(t)}
Truncates(t) == \E i \in DOMAIN RowsOf(t) : RowsOf(t)[i].kind = "truncate"
Commits(upto) == SelectSeq([i \in 1..upto |-> i], LAMBDA i : wal[i].kind = "commit")
IsCommitted(t) == \E i \in DOMAIN wal : wal[i].t = t /\ wal[i].kind = "commit"

(* What an event leaves of the row it finds. *)
Merged(before, e) ==
  [a |-> e.a, b |-> IF e.b # Absent THEN e.b
                    ELSE IF Bug("absent_is_null") THEN Null
                    ELSE IF before = NoRow THEN Missing ELSE before.b]
Changed(rows, e) ==
  CASE e.kind = "put" -> [rows EXCEPT ![e.key] = Merged(@, e)]
    [] e.kind = "delete" -> [rows EXCEPT ![e.key] = NoRow]
    [] e.kind = "move" -> [rows EXCEPT ![e.to] = Merged(rows[e.key], e), ![e.key] = NoRow]
    [] e.kind = "truncate" -> [k \in All |-> IF k \in Keys THEN NoRow ELSE rows[k]]

(* The truth has no bugs: what is absent is what was there. *)
TrueRow(before, e) == [a |-> e.a, b |-> IF e.b = Absent THEN before.b ELSE e.b]
TrueChange(rows, e) ==
  CASE e.kind = "put" -> [rows EXCEPT ![e.key] = TrueRow(@, e)]
    [] e.kind = "move" -> [rows EXCEPT ![e.to] = TrueRow(rows[e.key], e), ![e.key] = NoRow]
    [] OTHER -> Changed(rows, e)
RECURSIVE Run(_, _)
Run(rows, events) == IF events = <<>> THEN rows ELSE Run(TrueChange(rows, Head(events)), Tail(events))
RECURSIVE After(_, _)
After(rows, ts) == IF ts = <<>> THEN rows ELSE After(Run(rows, RowsOf(Head(ts))), Tail(ts))
Writers(commits) == [i \in DOMAIN commits |-> wal[commits[i]].t]
SourceAt(p) == After(Initial, Writers(Commits(p)))
Committed(S) == After(Initial, SelectSeq(Writers(Commits(Len(wal))), LAMBDA t : t \in S))

(* Ids are given in order, to a transaction before its subtransactions, when it first writes. *)
Given == UNION {{xids[t][s] : s \in Subs} : t \in Ids}
Numbered(t, s) ==
  LET top == IF xids[t][0] = 0 THEN [xids[t] EXCEPT ![0] = Largest(Given \cup {0}) + 1] ELSE xids[t]
      last == Largest(Given \cup {top[0]})
  IN IF top[s] = 0 THEN [top EXCEPT ![s] = last + 1] ELSE top

(* An operation that finds nothing to do writes nothing. *)
Event(t) ==
  LET o == txns[t][pc[t] + 1]
      seen == Run(Committed(ended), RowsOf(t))
      there == o.op \in {"put", "truncate"} \/ seen[o.key] # NoRow
      free == o.op # "move" \/ seen[o.to] = NoRow
  IN IF there /\ free
     THEN <<[t |-> t, sub |-> o.sub, xid |-> Numbered(t, o.sub)[o.sub],
             kind |-> IF o.op = "set" THEN "put" ELSE o.op, key |-> o.key, to |-> o.to, a |-> o.a, b |-> o.b]>>
     ELSE <<>>

Reading == {u \in DOMAIN work : work[u] # None}

WriteRow == \E t \in Ids :
  /\ ~Finished(t) /\ txns[t][pc[t] + 1].op \in {"put", "set", "delete", "move", "truncate"}
  /\ LET new == Event(t) IN
     /\ \A other \in Ids \ {t} : Running(other) =>
          \A i \in DOMAIN new : Holds(new[i]) \cap Locked(other) = {}
     /\ new # <<>> /\ new[1].kind = "truncate" => Reading = {} \/ Bug("lock_after_snapshot")
     /\ wal' = wal \o new
     /\ xids' = IF new = <<>> THEN xids ELSE [xids EXCEPT ![t] = Numbered(t, new[1].sub)]
  /\ pc' = [pc EXCEPT ![t] = @ + 1]
  /\ UNCHANGED <<txns, ended, slot, published, work, ledger, sink, faults>>

Rollback == \E t \in Ids :
  /\ ~Finished(t) /\ txns[t][pc[t] + 1].op = "back"
  /\ pc' = [pc EXCEPT ![t] = @ + 1]
  /\ UNCHANGED <<txns, wal, xids, ended, slot, published, work, ledger, sink, faults>>

(* In the log now, and not yet visible. *)
Commit == \E t \in Ids :
  /\ ~Finished(t) /\ txns[t][pc[t] + 1].op = "commit"
  /\ pc' = [pc EXCEPT ![t] = @ + 1]
  /\ wal' = IF xids[t][0] = 0 THEN wal ELSE Append(wal, [t |-> t, kind |-> "commit"])
  /\ UNCHANGED <<txns, xids, ended, slot, published, work, ledger, sink, faults>>

(* Visible to every snapshot from here on. A transaction whose last operation is no commit has aborted. *)
End == \E t \in Ids :
  /\ Finished(t) /\ t \notin ended
  /\ ended' = ended \cup {t}
  /\ UNCHANGED <<txns, wal, pc, xids, slot, published, work, ledger, sink, faults>>

(* As the source tells it: of the running ones the top-level ids only. *)
Snapshot ==
  LET xmax == Largest({0} \cup UNION {{xids[t][s] : s \in Subs} : t \in ended}) + 1
  IN [xmax |-> xmax, xip |-> {xids[t][0] : t \in {r \in Ids : Running(r)}} \cap 1..(xmax - 1)]
Sees(snap, xid) == xid < snap.xmax /\ xid \notin snap.xip

(* Which transactions are not in the log, as they lie before it. *)
Exported ==
  LET there == UNION {{xids[t][s] : s \in Subs \ RolledBack(t)} : t \in {c \in Ids : IsCommitted(c)}}
      xmax == Largest({0} \cup there) + 1
  IN [xmax |-> xmax, xip |-> 1..(xmax - 1) \ there]
Includes(snap, other) == \A x \in 1..(other.xmax - 1) : Sees(other, x) => Sees(snap, x)

(* The other table has been copied before; from here on it streams. *)
CreateSlot ==
  /\ slot = None
  /\ slot' = [phase |-> "made", at |-> Len(wal), seen |-> Exported]
  /\ sink' = [sink EXCEPT !.cursor = Len(wal),
                          !.rows = [k \in All |-> IF k \in Others THEN SourceAt(Len(wal))[k] ELSE NoRow]]
  /\ UNCHANGED <<txns, wal, pc, xids, ended, published, work, ledger, faults>>

(* Somebody adds the table to what the slot gives. *)
Publish ==
  /\ published = None
  /\ published' = [phase |-> "published", at |-> Len(wal)]
  /\ UNCHANGED <<source, slot, work, ledger, sink, faults>>

IsSent(i) == wal[i].key \in Others \/ (published # None /\ i > published.at)
(* Who has written rows that are not sent: they hold their locks until they have ended. *)
Earlier == {wal[i].t : i \in {j \in DOMAIN wal : IsRow(wal[j]) /\ ~IsSent(j)}}

-----------------------------------------------------------------------------
(* The backfill. *)

Plan == DOMAIN ledger
In(k, u) == u[1] <= k /\ k < u[2]
UnitsOf(k) == {u \in Plan : In(k, u)}
Known == {k \in Keys : Initial[k] # NoRow}
Top == IF Bug("end_is_last_key") THEN Largest(Known) + 1 ELSE High
FirstPlan ==
  LET edges == {Low, Top} \cup Bounds
  IN {u \in edges \X edges : u[1] < u[2] /\ \A e \in edges : ~(u[1] < e /\ e < u[2])}

Init ==
  /\ txns \in Histories
  /\ wal = <<>> /\ pc = [t \in Ids |-> 0] /\ xids = [t \in Ids |-> [s \in Subs |-> 0]] /\ ended = {}
  /\ slot = IF SlotFirst THEN [phase |-> "made", at |-> 0, seen |-> [xmax |-> 1, xip |-> {}]] ELSE None
  /\ published = IF PublishedFirst THEN [phase |-> "published", at |-> 0] ELSE None
  /\ ledger = [u \in FirstPlan |-> None] /\ work = [u \in FirstPlan |-> None]
  /\ sink = [cursor |-> 0, rows |-> [k \in All |-> IF k \in Others THEN Initial[k] ELSE NoRow],
             applied |-> {}, floor |-> [u \in FirstPlan |-> 0], edition |-> 1,
             times |-> [u \in FirstPlan |-> 0]]
  /\ faults = 0

Streaming == Plan = sink.applied

(* A unit that nobody has begun, or whose reader has only begun, turns out to be large. *)
Split == \E u \in Plan, k \in Splits :
  /\ u[1] < k /\ k < u[2]
  /\ ledger[u] = None /\ u \notin sink.applied
  /\ LET left == <<u[1], k>>  right == <<k, u[2]>>
         plan == (Plan \ {u}) \cup {left, right}
         Put(f, l, r) == [v \in plan |-> IF v = left THEN l ELSE IF v = right THEN r ELSE f[v]]
     IN /\ ledger' = Put(ledger, None, None)
        /\ work' = Put(work, work[u], None)
        /\ sink' = [sink EXCEPT !.floor = Put(@, @[u], @[u]), !.times = Put(@, 0, 0)]
  /\ UNCHANGED <<source, slot, published, faults>>

Unseen(snap, upto) == {i \in (slot.at + 1)..upto : wal[i].kind = "commit" /\ ~Sees(snap, xids[wal[i].t][0])}
Seen(snap, upto) == {i \in (slot.at + 1)..upto : wal[i].kind = "commit" /\ Sees(snap, xids[wal[i].t][0])}
HiOf(snap, end) == Largest({slot.at} \cup Seen(snap, end))
LoOf(snap, end) == LET them == Unseen(snap, HiOf(snap, end)) IN
  IF them = {} THEN HiOf(snap, end) ELSE (CHOOSE i \in them : \A j \in them : i <= j) - 1

(* The table is locked against TRUNCATE, then the snapshot is taken, then the end of the log is asked for. The
   snapshot has to see what the log leaves out, be it before the slot or before the table was published, and what
   made another reading necessary. *)
OpenUnit == \E u \in Plan :
  /\ slot # None /\ published # None /\ work[u] = None /\ ledger[u] = None /\ u \notin sink.applied
  /\ Cardinality(Reading) < Workers
  /\ \A t \in Ids : Running(t) => ~Truncates(t) \/ Bug("lock_after_snapshot")
  /\ Includes(Snapshot, slot.seen) \/ Bug("start_unchecked")
  /\ Earlier \subseteq ended \/ Bug("writers_unawaited")
  /\ Unseen(Snapshot, sink.floor[u]) = {}
  /\ work' = [work EXCEPT ![u] = [phase |-> "open", snap |-> Snapshot, end |-> Len(wal)]]
  /\ UNCHANGED <<source, slot, published, ledger, sink, faults>>

Seers(snap) == {t \in Ids : xids[t][0] # 0 /\ Sees(snap, xids[t][0])}
(* A snapshot older than a TRUNCATE finds nothing, although it does not see it. *)
Emptied(w) == \E t \in ended : IsCommitted(t) /\ Truncates(t) /\ t \notin Seers(w.snap)
Found(u) ==
  LET w == work[u]
      seers == Seers(IF Bug("snapshot_apart") THEN Snapshot ELSE w.snap)
      rows == Committed(seers)
  IN [k \in {q \in Keys : In(q, u)} |-> IF Emptied(w) THEN NoRow ELSE rows[k]]

(* The log that the slot gives: (position, event), transaction after transaction. *)
SentOf(t) ==
  LET is == SelectSeq([i \in DOMAIN wal |-> i], LAMBDA i :
               wal[i].t = t /\ IsRow(wal[i]) /\ IsSent(i) /\ wal[i].sub \notin RolledBack(t))
  IN [j \in DOMAIN is |-> wal[is[j]]]
RECURSIVE Flat(_)
Flat(commits) ==
  IF commits = <<>> THEN <<>>
  ELSE LET rows == SentOf(wal[Head(commits)].t)
       IN [i \in DOMAIN rows |-> [at |-> Head(commits), e |-> rows[i]]] \o Flat(Tail(commits))
ByRow(upto) ==
  LET is == SelectSeq([i \in 1..upto |-> i], LAMBDA i :
               IsRow(wal[i]) /\ IsSent(i) /\ IsCommitted(wal[i].t) /\ wal[i].sub \notin RolledBack(wal[i].t))
  IN [j \in DOMAIN is |-> [at |-> is[j], e |-> wal[is[j]]]]
Log(upto) ==
  SelectSeq(IF Bug("row_order") THEN ByRow(upto) ELSE Flat(Commits(upto)), LAMBDA x : x.at > slot.at)

Evidence(u) ==
  IF ledger[u] # None THEN ledger[u]
  ELSE [phase |-> "recorded", snap |-> work[u].snap,
        lo |-> LoOf(work[u].snap, work[u].end), hi |-> HiOf(work[u].snap, work[u].end), rows |-> Found(u)]

(* Its rows are read and stored; then all that is to be known of it becomes durable, before anything is made of
   it. Its lo and hi are found in the log, which is there up to where it ended
   when the snapshot had been taken. *)
RecordUnit == \E u \in Plan :
  /\ work[u].phase = "open"
  /\ ledger' = [ledger EXCEPT ![u] = Evidence(u)]
  /\ work' = [work EXCEPT ![u] = None]
  /\ UNCHANGED <<source, slot, published, sink, faults>>

-----------------------------------------------------------------------------
(* Delivery. *)

MayApply(u, upto) ==
  /\ ledger[u] # None \/ (Bug("applied_unrecorded") /\ work[u] # None)
  /\ u \notin sink.applied \/ Bug("applied_again")
  /\ Evidence(u).hi <= upto \/ Bug("hi_ignored")

(* Whether an event of the log is for a key in a wave that ends at `upto` and applies the units `us`. *)
Splices(u, x) ==
  LET ev == Evidence(u)
      id == IF Bug("subtransactions_forgotten") THEN x.e.xid ELSE xids[x.e.t][0]
  IN IF Bug("watermark_only") THEN x.at > ev.hi
     ELSE /\ x.at > (IF Bug("replayed_from_cursor") THEN sink.cursor ELSE ev.lo)
          /\ ~Sees(ev.snap, id)
          /\ ~(Bug("truncate_ignored") /\ x.e.kind = "truncate")
Takes(k, x, us) ==
  IF k \in Others THEN x.at > sink.cursor
  ELSE \E u \in UnitsOf(k) : IF u \in us THEN Splices(u, x) ELSE u \in sink.applied /\ x.at > sink.cursor

Taken(rows, x, us) ==
  LET e == x.e
      before == IF e.kind = "move" /\ ~Takes(e.key, x, us) THEN [rows EXCEPT ![e.key] = NoRow] ELSE rows
      after == Changed(before, e)
  IN [k \in All |-> IF Takes(k, x, us) THEN after[k] ELSE rows[k]]
RECURSIVE Replayed(_, _, _)
Replayed(rows, log, us) ==
  IF log = <<>> THEN rows ELSE Replayed(Taken(rows, Head(log), us), Tail(log), us)

Begun(us) == [k \in All |-> IF k \in Keys /\ UnitsOf(k) \cap us # {}
                            THEN Evidence(CHOOSE u \in UnitsOf(k) : u \in us).rows[k] ELSE sink.rows[k]]
Torn(rows) == IF Bug("torn_kept") THEN {} ELSE {u \in Plan : \E k \in Keys : In(k, u) /\ rows[k].b = Missing}

(* One commit. A unit that lacks a value is out again: it will be read under a snapshot that sees all of this. *)
Wave == \E us \in SUBSET Plan, upto \in sink.cursor..Len(wal) :
  /\ slot # None /\ (upto > sink.cursor \/ us # {})
  /\ upto > sink.cursor => wal[upto].kind = "commit"
  /\ \A u \in us : MayApply(u, upto)
  /\ LET rows == Replayed(Begun(us), Log(upto), us)
         torn == Torn(rows)
     IN /\ ledger' = [u \in Plan |-> IF u \in torn THEN None ELSE ledger[u]]
        /\ sink' = [sink EXCEPT
          !.cursor = upto, !.applied = (@ \cup us) \ torn,
          !.rows = [k \in All |-> IF k \in Keys /\ UnitsOf(k) \cap torn # {} THEN NoRow ELSE rows[k]],
          !.floor = [u \in Plan |-> IF u \in torn THEN upto ELSE @[u]],
          !.times = [u \in Plan |-> IF u \in torn THEN 0 ELSE IF u \in us THEN @[u] + 1 ELSE @[u]]]
  /\ UNCHANGED <<source, slot, published, work, faults>>

(* Somebody asks for the table to be copied once more. *)
Repeat ==
  /\ Streaming /\ sink.edition < MaxEditions
  /\ sink' = [sink EXCEPT !.edition = @ + 1, !.applied = {},
                          !.floor = [u \in Plan |-> 0], !.times = [u \in Plan |-> 0],
                          !.rows = [k \in All |-> IF k \in Keys THEN NoRow ELSE @[k]]]
  /\ ledger' = [u \in Plan |-> None] /\ work' = [u \in Plan |-> None]
  /\ UNCHANGED <<source, slot, published, faults>>

(* Whatever no record tells of is forgotten. *)
Forget ==
  /\ faults < MaxFaults /\ faults' = faults + 1
  /\ work' = [u \in Plan |-> None] /\ work' # work
  /\ UNCHANGED <<source, slot, published, ledger, sink>>

-----------------------------------------------------------------------------
Source == WriteRow \/ Rollback \/ Commit \/ End \/ CreateSlot \/ Publish
Backfill == Split \/ OpenUnit \/ RecordUnit \/ Wave \/ Repeat
Next == Source \/ Backfill \/ Forget
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Laws. *)

(* At every frontier that is acknowledged the sink is the source at that commit: other tables, the table once it
   streams, and until then each unit that was applied. *)
SinkTrue == slot # None => LET truth == SourceAt(sink.cursor) IN \A k \in All :
  k \in Others \/ Streaming \/ UnitsOf(k) \cap sink.applied # {} => sink.rows[k] = truth[k]

(* A frontier is a commit, or where the log begins. *)
NotSplit == slot # None => sink.cursor = slot.at \/ wal[sink.cursor].kind = "commit"

(* What was applied can be shown. *)
Evidenced == \A u \in sink.applied : ledger[u] # None
AppliedOnce == \A u \in Plan : sink.times[u] <= 1

(* All that a unit did not see lies after lo, all that it saw at or before hi; and each row that it found, or
   did not find, was the source's somewhere between. *)
EvidenceTrue == \A u \in Plan : ledger[u] # None =>
  LET r == ledger[u]  past == [p \in 0..r.hi |-> IF p >= r.lo THEN SourceAt(p) ELSE Initial] IN
    /\ slot.at <= r.lo /\ r.lo <= r.hi
    /\ Unseen(r.snap, r.lo) = {}
    /\ \A i \in DOMAIN wal : i > r.hi /\ wal[i].kind = "commit" => ~Sees(r.snap, xids[wal[i].t][0])
    /\ \A k \in Keys : In(k, u) => \E p \in r.lo..r.hi : r.rows[k] = past[p][k]

(* What is claimed of a finished backfill: every key is in one unit, and no unit ends after the frontier. *)
Claimed == Streaming =>
  /\ \A k \in Low..Largest(Keys) : Cardinality(UnitsOf(k)) = 1
  /\ \A u \in Plan : ledger[u] # None => ledger[u].hi <= sink.cursor

FrontierForward == [][slot # None => sink'.cursor >= sink.cursor]_sink

-----------------------------------------------------------------------------
(* Progress: the backfill ends, and the frontier goes on. *)

Fair ==
  /\ WF_vars(WriteRow) /\ WF_vars(Rollback) /\ WF_vars(Commit) /\ WF_vars(End) /\ WF_vars(CreateSlot) /\ WF_vars(Publish)
  /\ WF_vars(OpenUnit) /\ WF_vars(RecordUnit) /\ WF_vars(Wave)
FairSpec == Spec /\ Fair

BackfillEnds == <>[]Streaming
FrontierGoesOn == <>[](\A i \in DOMAIN wal : wal[i].kind = "commit" => i <= sink.cursor)

=============================================================================
