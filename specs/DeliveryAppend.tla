--------------------------- MODULE DeliveryAppend ---------------------------
(***************************************************************************)
(* Append tables: the same protocol (Delivery, with Mode = "append"), but  *)
(* a sink holds one row for each change. Nothing is idempotent here: a     *)
(* change that is written twice is there twice. Behind a gap an append     *)
(* table is held, never seeded anew.                                       *)
(***************************************************************************)
EXTENDS Models

(* The rows are those of one seed and then the log's share, none twice, none missing, in order. *)
AppendExactlyOnce ==
  \A s \in Sinks : sink[s].cursor # Unseeded =>
    \E base \in 0..sink[s].cursor :
      sink[s].data = Reads(hist, s, base) \o Log(hist, s, base, sink[s].cursor)

AppendNoDuplicate ==
  \A s \in Sinks : \A i, j \in DOMAIN sink[s].data : i # j => sink[s].data[i] # sink[s].data[j]

(* Every append table becomes current, or is held behind a gap until somebody decides. *)
AppendBecomesCurrent ==
  <>[](\A s \in Sinks : \E r \in Runners :
         St(r, s).phase = "idle" /\ (St(r, s).position = Len(hist) \/ St(r, s).copy = "held"))
=============================================================================
