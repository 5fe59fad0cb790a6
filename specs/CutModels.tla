------------------------------ MODULE CutModels ------------------------------
(* The histories of the models cut*.cfg in models/: who writes what, in which order of its own. *)
EXTENDS Cut

Op(name, key, to, a, b, sub) == [op |-> name, key |-> key, to |-> to, a |-> a, b |-> b, sub |-> sub]
Put(k, a, b) == Op("put", k, k, a, b, 0)
Set(k, a) == Op("set", k, k, a, Absent, 0)          \* the other column did not change
Delete(k) == Op("delete", k, k, 0, 0, 0)
Move(k, to, a) == Op("move", k, to, a, Absent, 0)   \* another key; the other column did not change
Truncate == Op("truncate", 1, 1, 0, 0, 0)
Sub(o) == [o EXCEPT !.sub = 1]
Back == Op("back", 1, 1, 0, 0, 1)
Done == Op("commit", 1, 1, 0, 0, 0)

Row(a, b) == [a |-> a, b |-> b]
Two == {1, 2}
Three == {1, 2, 3}
Other == {9}
TwoRows == [k \in Two \cup Other |-> Row(k, 10 + k)]
ThreeRows == [k \in Three \cup Other |-> IF k = 3 THEN NoRow ELSE Row(k, 10 + k)]

(* Overlapping, with the other table in the same transaction; a key that is made, one that goes. *)
Overlap == << <<Set(1, 21), Put(9, 22, 23), Done>>, <<Set(2, 31), Done>> >>
Remade == << <<Delete(1), Put(2, 21, 22), Done>>, <<Put(1, 31, 32), Set(9, 33), Done>> >>
Beyond == << <<Put(3, 21, 22), Done>>, <<Set(1, 31), Done>> >>
(* Savepoints: one that stays, one that is rolled back. *)
Saved == << <<Set(1, 21), Sub(Set(2, 22)), Done>>, <<Set(9, 31), Done>> >>
Undone == << <<Set(1, 21), Sub(Put(2, 22, 23)), Back, Done>>, <<Set(2, 31), Done>> >>
Aborted == << <<Set(1, 21), Put(9, 22, 23)>>, <<Set(2, 31), Done>> >>
(* All rows go, and one is made anew. *)
Emptied_ == << <<Truncate, Put(1, 21, 22), Done>>, <<Set(2, 31), Put(9, 32, 33), Done>> >>
(* A row changes its key and not its large value: to another unit, and back again. *)
Moved == << <<Move(2, 3, 21), Done>> >>
MovedBeside == << <<Move(2, 3, 21), Done>>, <<Set(9, 31), Done>> >>
Returned == << <<Move(2, 3, 21), Done>>, <<Move(3, 2, 31), Done>> >>

Kinds == {Overlap, Remade, Saved, Undone, Aborted, Emptied_, Beyond}
Moving == {Moved}
Late == {<< <<Set(1, 21), Done>>, <<Set(2, 31), Done>> >>}
(* Written before the table is published and after it, and to another table beside. *)
Joined == {<< <<Set(1, 21), Put(9, 22, 23), Set(2, 24), Done>>, <<Set(2, 31), Done>> >>}
WalkedJoined == {<< <<Set(1, 21), Set(2, 22), Done>> >>}
Walked == {Moved, << <<Truncate, Put(1, 21, 22), Done>> >>}
WalkedBeside == {<< <<Sub(Set(2, 21)), Done>>, <<Set(1, 31), Done>> >>}
Live == {<< <<Move(2, 3, 21), Truncate, Done>> >>, Moved}
Large == {Overlap, MovedBeside, Returned}

NoKeys == {}
AtTwo == {2}
AtThree == {3}
=============================================================================
