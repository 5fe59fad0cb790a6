------------------------------- MODULE Models -------------------------------
(* The histories that the models in models/ use, and their symmetries. *)
EXTENDS Delivery, TLC

K1 == CHOOSE k \in Keys : TRUE
K2 == CHOOSE k \in Keys : k # K1
T1 == CHOOSE t \in Tables : TRUE
T2 == CHOOSE t \in Tables : t # T1
RouteA == CHOOSE r \in Sinks : TRUE
RouteB == CHOOSE r \in Routes : r # RouteA

(* What replaces a constant is evaluated at every use; what it names is evaluated once. *)
AllInOne == [k \in Keys |-> T1]
OneTable == AllInOne
OneEach == [k \in Keys |-> IF k = K1 THEN T1 ELSE T2]
TwoTables == OneEach

Recreated == << <<Insert(K1, RouteA)>>, <<Delete(K1), Insert(K1, RouteA)>>, <<Update(K1)>> >>
RecreatedLater == << <<Insert(K1, RouteA)>>, <<Delete(K1)>>, <<Insert(K1, RouteA), Insert(K2, RouteA)>> >>
Rekeyed == << <<Insert(K1, RouteA)>>, <<Rekey(K1, K2)>>, <<Insert(K1, RouteB), Update(K2)>> >>
Rerouted == << <<Insert(K1, RouteA), Insert(K2, RouteB)>>, <<Reroute(K1, RouteB), Update(K2)>>, <<Reroute(K1, RouteA)>> >>
Elsewhere == << <<Insert(K1, RouteA)>>, <<Insert(K2, RouteB)>>, <<Update(K2)>>, <<Reroute(K2, RouteA)>> >>

Of(scripts) == [n \in DOMAIN scripts |-> History(scripts[n])]

Small == Of(<<Recreated, RecreatedLater, Rekeyed, Rerouted, Elsewhere>>)
OneKey == Of(<< << <<Insert(K1, RouteA)>>, <<Update(K1)>> >> >>)
Two == Of(<< << <<Insert(K1, RouteA), Insert(K2, RouteB)>>, <<Reroute(K1, RouteB), Update(K2)>> >> >>)
Several == Of(<<
  << <<Insert(K1, RouteA), Insert(K2, RouteB)>>, <<Reroute(K1, RouteB), Update(K2)>> >>,
  << <<Insert(K1, RouteA), Insert(K2, RouteB)>>, <<Delete(K2), Rekey(K1, K2)>> >>,
  << <<Insert(K1, RouteA), Insert(K2, RouteA)>>, <<Delete(K1), Insert(K1, RouteB)>> >>,
  << <<Insert(K1, RouteA)>>, <<Insert(K2, RouteB), Reroute(K1, RouteB), Update(K1)>> >> >>)
Live == Of(<< << <<Insert(K1, RouteA)>>, <<Insert(K2, RouteB)>> >>,
              << <<Insert(K1, RouteA)>>, <<Reroute(K1, RouteB)>> >> >>)
Walk == Of(<< << <<Insert(K1, RouteA)>>, <<Insert(K2, RouteB)>> >> >>)

(* Two tables: one changes while the other rests, then both do; the first change is not for the sink. *)
Turns == Of(<< << <<Insert(K1, RouteA)>>, <<Insert(K2, RouteA)>> >> >>)
Apart == Of(<< << <<Insert(K1, RouteA)>>, <<Insert(K2, RouteB)>>, <<Update(K1), Reroute(K2, RouteA)>> >> >>)
(* Another source takes the place of the first at the second snapshot (ReplacedAt = 2). *)
Replaced == Of(<< << <<Insert(K1, RouteA)>>, <<Delete(K1), Insert(K2, RouteA)>>, <<Update(K2)>> >> >>)
(* The same at the third (ReplacedAt = 3), beyond the other histories that are walked. *)
ReplacedLater == Of(<< << <<Insert(K1, RouteA)>>, <<Update(K1)>>, <<Delete(K1), Insert(K2, RouteA)>> >> >>)
One == Of(<< << <<Insert(K1, RouteA), Insert(K2, RouteA)>> >> >>)

Three == Of(InOrder(AllScripts(3, 2)))

(* TLC would build the histories anew at every use: they are built once, into a register. *)
ASSUME TLCSet(1, TLCEval(Histories))
Remembered == TLCGet(1)[which]

RunnerSymmetry == Permutations(Runners)
=============================================================================
