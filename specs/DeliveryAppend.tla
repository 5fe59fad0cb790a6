--------------------------- MODULE DeliveryAppend ---------------------------
(***************************************************************************)
(* Append tables: the same protocol (Delivery, with Mode = "append"), but  *)
(* a copy holds one row for each change. Nothing is idempotent here: a     *)
(* change that is written twice is there twice. Behind a gap an append     *)
(* table is held; only when somebody insists is it read whole once more.   *)
(***************************************************************************)
EXTENDS Models

(* The rows are those of one edition or several, each a seed and then the log's share, none twice, none
   missing, in order; between the end of one edition and the next seed there may be a gap. Rows that other
   settings shaped are gone. *)
RECURSIVE Pieces(_, _, _, _, _)
Pieces(s, t, data, editions, upto) ==
  IF editions = 0 THEN data = <<>>
  ELSE \E base \in 0..upto :
         LET last == Reads(hist, s, t, base) \o Log(hist, s, t, base, upto)
             rest == Len(data) - Len(last)
         IN /\ rest >= 0
            /\ SubSeq(data, rest + 1, Len(data)) = last
            /\ \E end \in 0..base : Pieces(s, t, SubSeq(data, 1, rest), editions - 1, end)

AppendExactlyOnce ==
  \A c \in Copies : Here(c[1], c[2]) =>
    \E editions \in 1..Version(c[1], c[2]).edition :
      Pieces(c[1], c[2], Data(c[1], c[2]), editions, Version(c[1], c[2]).at)

(* Rows that were read whole may be read whole again; a change is there once. *)
AppendNoDuplicate ==
  \A c \in Copies : LET data == Data(c[1], c[2]) IN
    \A i, j \in DOMAIN data : (i # j /\ data[i][2] # "read") => data[i] # data[j]

(* Reading an append table again passes over no change that was to be told; behind a gap there is none left. *)
AgainMissesNothing ==
  [][\A c \in Copies :
       LET v == Version(c[1], c[2])
           w == sink'[c[1]].copies[c[2]].v
       IN (wishes.again[c[1]][c[2]] > 0 /\ w.edition > v.edition /\ v.hold = "none" /\ v.at >= oldest) =>
            ~Touches(hist, c[1], c[2], v.at, w.at)]_vars

(* Every append table becomes current, or is paused, or is held until somebody decides. *)
AppendBecomesCurrent == <>[](\A c \in Copies : Settled(c[1], c[2]))
=============================================================================
