-------------------------- MODULE SegmentLogModels --------------------------
(* The symmetries of the models log-*.cfg in models/. *)
EXTENDS SegmentLog, TLC

Symmetry == Permutations(Nodes) \cup Permutations(Producers)
=============================================================================
