-------------------------- MODULE SegmentLogModels --------------------------
(* The symmetries of the models log-*.cfg in models/. *)
EXTENDS SegmentLog, TLC

Symmetry == Permutations(Nodes) \cup Permutations(Producers)

(* For graphs that are walked edge by edge, where a symmetry would rename what it leads to: of all that
   differs in names only, one is kept. The first owner, the first segment's place, and whose
   disk or files are lost, are given. *)
Home == CHOOSE place \in SUBSET Nodes : Cardinality(place) = Replicas
Named ==
  /\ coord.token = 0 => prod'[CHOOSE p \in Producers : TRUE].phase # "away"
  /\ coord.segs = <<>> /\ coord'.segs # <<>> => coord'.segs[1].nodes = Home
  /\ dead' \subseteq {CHOOSE n \in Home : TRUE}
  /\ \A n \in Home \ {CHOOSE n \in Home : TRUE}, s \in 1..Segments :
       At(n, s).state \notin {"none", "damaged"} /\ s > coord.trimmed => node'[n][s].state \notin {"none", "damaged"}
=============================================================================
