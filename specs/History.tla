------------------------------ MODULE History ------------------------------
(***************************************************************************)
(* The source's history, and what a window of it means to one copy: the    *)
(* share of one table that is routed to one sink.                          *)
(*                                                                         *)
(* A history is a sequence of snapshots; position i is the content after   *)
(* the i-th of them, position 0 is empty. A snapshot holds one or more     *)
(* operations: insert, delete, update in place, a changed key, a changed   *)
(* route. The log has them as a change feed does: an update is a pre and a *)
(* post image. `ev[s][t]` is a snapshot's log of table t in normal form    *)
(* for sink s: a changed key or route is a delete there and an insert here.*)
(*                                                                         *)
(* A mirror's content is a bag: [Keys \X Vals -> how many].                *)
(* An append table's content is a sequence of <<position, kind, key, val>>. *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Keys,       \* row identities
  Tables,
  TableOf,    \* [Keys -> Tables]: each key belongs to one table
  Routes,     \* values of the routing column; a sink's name is its route
  Sinks,      \* \subseteq Routes: the others' rows match no sink
  Mode,       \* "mirror" or "append"
  Bugs        \* names of the faults that are switched on; {} is the protocol

Vals == {1, 2}
NoRow == [route |-> "none", val |-> 0]
Row == [route : Routes, val : Vals]
Nothing == [k \in Keys |-> NoRow]

Max(a, b) == IF a >= b THEN a ELSE b
MinOf(S) == CHOOSE x \in S : \A y \in S : x <= y
MaxOf(S) == CHOOSE x \in S : \A y \in S : x >= y

-----------------------------------------------------------------------------
(* Operations on the source's tables. *)

Insert(k, r) == [op |-> "insert", key |-> k, to |-> r]
Delete(k) == [op |-> "delete", key |-> k]
Update(k) == [op |-> "update", key |-> k]
Rekey(k, n) == [op |-> "rekey", key |-> k, new |-> n]
Reroute(k, r) == [op |-> "reroute", key |-> k, to |-> r]

AllOps == {Insert(k, r) : k \in Keys, r \in Routes} \cup {Delete(k) : k \in Keys}
          \cup {Update(k) : k \in Keys} \cup {Rekey(k, n) : k \in Keys, n \in Keys}
          \cup {Reroute(k, r) : k \in Keys, r \in Routes}

Possible(rows, o) ==
  CASE o.op = "insert" -> rows[o.key] = NoRow
    [] o.op = "rekey" -> rows[o.key] # NoRow /\ rows[o.new] = NoRow /\ TableOf[o.key] = TableOf[o.new]
    [] o.op = "reroute" -> rows[o.key] # NoRow /\ rows[o.key].route # o.to
    [] OTHER -> rows[o.key] # NoRow

After(rows, o) ==
  CASE o.op = "insert" -> [rows EXCEPT ![o.key] = [route |-> o.to, val |-> 1]]
    [] o.op = "delete" -> [rows EXCEPT ![o.key] = NoRow]
    [] o.op = "update" -> [rows EXCEPT ![o.key].val = 3 - @]
    [] o.op = "rekey" -> [rows EXCEPT ![o.key] = NoRow, ![o.new] = rows[o.key]]
    [] o.op = "reroute" -> [rows EXCEPT ![o.key].route = o.to]

(* Normal form of one operation for one sink. The old image becomes a delete when key or route changed. *)
Event(kind, k, v) == [kind |-> kind, key |-> k, val |-> v]

NormalUpdate(s, old, new) ==   \* images: [key, route, val]
  LET moved == old.key # new.key
      routed == old.route # new.route
      gone == /\ old.route = s
              /\ \/ routed /\ "route_change_without_delete" \notin Bugs
                 \/ moved /\ ~routed /\ "key_change_without_delete" \notin Bugs
  IN (IF gone THEN <<Event("delete", old.key, old.val)>> ELSE <<>>)
     \o (IF new.route # s THEN <<>>
         ELSE IF moved \/ routed THEN <<Event("insert", new.key, new.val)>>
         ELSE <<Event("update", new.key, new.val)>>)

Normal(s, rows, o) ==
  LET image(k, r) == [key |-> k, route |-> r.route, val |-> r.val]
      after == After(rows, o)
  IN CASE o.op = "insert" -> IF o.to = s THEN <<Event("insert", o.key, 1)>> ELSE <<>>
       [] o.op = "delete" -> IF rows[o.key].route = s
                             THEN <<Event("delete", o.key, rows[o.key].val)>> ELSE <<>>
       [] o.op = "rekey" -> NormalUpdate(s, image(o.key, rows[o.key]), image(o.new, after[o.new]))
       [] OTHER -> NormalUpdate(s, image(o.key, rows[o.key]), image(o.key, after[o.key]))

-----------------------------------------------------------------------------
(* Histories from scripts: a script is a sequence of snapshots, each a sequence of operations. *)

RECURSIVE RowsAfter(_, _)
RowsAfter(rows, ops) == IF ops = <<>> THEN rows ELSE RowsAfter(After(rows, Head(ops)), Tail(ops))

RECURSIVE EventsOf(_, _, _)
EventsOf(s, rows, ops) ==
  IF ops = <<>> THEN <<>>
  ELSE Normal(s, rows, Head(ops)) \o EventsOf(s, After(rows, Head(ops)), Tail(ops))

KeysOf(t) == {k \in Keys : TableOf[k] = t}
NoBag(t) == [kv \in KeysOf(t) \X Vals |-> 0]
Bag(s, t, rows) ==
  [kv \in KeysOf(t) \X Vals |-> IF rows[kv[1]].route = s /\ rows[kv[1]].val = kv[2] THEN 1 ELSE 0]

OfTable(t, events) == SelectSeq(events, LAMBDA e : TableOf[e.key] = t)

RECURSIVE Built(_, _)
Built(rows, script) ==
  IF script = <<>> THEN <<>>
  ELSE LET after == RowsAfter(rows, Head(script))
       IN <<[rows |-> after,
             ev |-> [s \in Sinks |-> [t \in Tables |-> OfTable(t, EventsOf(s, rows, Head(script)))]],
             share |-> [s \in Sinks |-> [t \in Tables |-> Bag(s, t, after)]]]>>
          \o Built(after, Tail(script))

History(script) == Built(Nothing, script)

(* Every history of at most `ops` operations, in snapshots of at most `each`. *)
RECURSIVE Snapshots(_, _)
Snapshots(rows, n) ==   \* the sequences of 1..n operations that are possible from here
  IF n = 0 THEN {}
  ELSE UNION {{<<o>>} \cup {<<o>> \o rest : rest \in Snapshots(After(rows, o), n - 1)} :
              o \in {p \in AllOps : Possible(rows, p)}}

RECURSIVE ScriptsFrom(_, _, _)
ScriptsFrom(rows, ops, each) ==
  IF ops = 0 THEN {<<>>}
  ELSE {<<>>} \cup UNION {{<<snap>> \o rest : rest \in ScriptsFrom(RowsAfter(rows, snap), ops - Len(snap), each)} :
                          snap \in Snapshots(rows, IF each < ops THEN each ELSE ops)}

OpCount(script) == LET RECURSIVE Count(_)
                       Count(q) == IF q = <<>> THEN 0 ELSE Len(Head(q)) + Count(Tail(q))
                   IN Count(script)

AllScripts(ops, each) == {q \in ScriptsFrom(Nothing, ops, each) : OpCount(q) = ops}

-----------------------------------------------------------------------------
(* What a copy should hold, and what a window does to what it holds. *)

RowsAt(h, i) == IF i = 0 THEN Nothing ELSE h[i].rows

(* The share of sink s of table t at position i, as a bag. *)
Share(h, s, t, i) == IF i = 0 THEN NoBag(t) ELSE h[i].share[s][t]

(* The log of table t for sink s in (after, upto], with positions. *)
RECURSIVE Log(_, _, _, _, _)
Log(h, s, t, after, upto) ==
  IF upto <= after THEN <<>>
  ELSE Log(h, s, t, after, upto - 1)
       \o [n \in DOMAIN h[upto].ev[s][t] |->
             <<upto, h[upto].ev[s][t][n].kind, h[upto].ev[s][t][n].key, h[upto].ev[s][t][n].val>>]

Touches(h, s, t, after, upto) == \E i \in (after + 1)..upto : h[i].ev[s][t] # <<>>

(* What is read for a window: half-open. *)
Read(h, s, t, after, upto) ==
  LET low == IF "inclusive_read" \in Bugs THEN Max(after - 1, 0) ELSE after
      log == Log(h, s, t, low, upto)
  IN IF "split_transaction" \in Bugs /\ Len(h[upto].ev[s][t]) > 1
     THEN SubSeq(log, 1, Len(log) - 1)
     ELSE log

(* Mirror: per key the latest event wins. A key whose first event is an insert was not there before, so
   nothing is deleted for it; whatever makes that untrue shows as a duplicate. *)
Resolved(t, bag, log) ==
  [kv \in KeysOf(t) \X Vals |->
     LET mine == {n \in DOMAIN log : log[n][3] = kv[1]}
         first == log[MinOf(mine)]
         last == log[MaxOf(mine)]
         lost == "resolve_by_rowid" \in Bugs /\ \E n \in mine : log[n][2] = "delete"
     IN IF mine = {} THEN bag[kv]
        ELSE (IF first[2] = "insert" THEN bag[kv] ELSE 0)
             + (IF last[2] # "delete" /\ last[4] = kv[2] /\ ~lost THEN 1 ELSE 0)]

(* Append: a seed's rows, in one fixed order. *)
RECURSIVE InOrder(_)
InOrder(S) == IF S = {} THEN <<>> ELSE LET x == CHOOSE x \in S : TRUE IN <<x>> \o InOrder(S \ {x})

Reads(h, s, t, i) ==
  InOrder({<<i, "read", k, RowsAt(h, i)[k].val>> : k \in {k \in KeysOf(t) : RowsAt(h, i)[k].route = s}})

Written(h, s, t, data, after, upto) ==
  IF Mode = "append" THEN data \o Read(h, s, t, after, upto) ELSE Resolved(t, data, Read(h, s, t, after, upto))

Seeded(h, s, t, data, at) ==
  IF Mode = "append" THEN data \o Reads(h, s, t, at)
  ELSE IF "seed_appends" \in Bugs
  THEN [kv \in KeysOf(t) \X Vals |-> data[kv] + Share(h, s, t, at)[kv]]
  ELSE Share(h, s, t, at)
=============================================================================
