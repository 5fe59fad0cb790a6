(* The premises can be met, and the checker refuses what is wrong: a theorem whose premises nobody meets, or a
   checker that accepts nothing, would say nothing. Keys are in the order of their bytes here. *)
Require Import List Bool NArith String.
Require Import Replay VirtualCut Splice Ranges Checker.
Import ListNotations.
Local Open Scope N_scope.
Local Open Scope string_scope.

(* Transaction 2 commits at 11 and is seen. 3 commits at 12 and is not seen, although 4, at 13, is: so the
   snapshot is no place of the log. 5 is a subtransaction of 3. *)
Definition snap := Snapshot 6 [3].
Definition history :=
  [Change 11 2 (Some "a") (Some "a2"); Change 12 3 (Some "b") (Some "b3"); Change 12 5 (Some "a") None;
   Change 13 4 (Some "c") (Some "c4")].
Definition left_part (rs : rows) := ReadUnit (Range None (Some "b")) 11 13 snap rs.
Definition right_part (rs : rows) := ReadUnit (Range (Some "b") None) 11 13 snap rs.
Definition of_parts (us : list read_unit) (l : list change) (ps : list (N * N)) (rs : rows) :=
  Certificate 10 (Snapshot 2 []) 13 us l ps rs.
Definition honest_units := [left_part [("a", "a2")]; right_part [("c", "c4")]].
Definition honest := of_parts honest_units history [(5, 3)] [("b", "b3"); ("c", "c4")].
Definition verdict := accepts String.ltb.

Example the_honest_one_is_accepted : verdict honest = true.
Proof. reflexivity. Qed.

Example the_honest_one_is_observed : observed String.ltb honest (fun _ => None) [] [].
Proof.
  constructor; try solve [intros e []|intros e u []].
  - intros u [<-|[<-|[]]] k Hk; cbn in *.
    + destruct (String.eqb k "a") eqn:E; [apply String.eqb_eq in E; subst; reflexivity|].
      unfold upd. cbn. rewrite E. cbn. destruct (String.eqb k "c") eqn:C; auto.
      apply String.eqb_eq in C. subst. discriminate.
    + unfold upd. cbn. destruct (String.eqb k "c") eqn:C; auto.
      destruct (String.eqb k "a") eqn:E; auto. apply String.eqb_eq in E. subst. discriminate.
  - intros u k [<-|[<-|[]]]; cbn; repeat split; intros H1 H2 x Hx H3; cbn in *; try discriminate;
    repeat (destruct Hx as [<-|Hx]; cbn in *; auto); try tauto;
    unfold told_by in *; cbn in *;
    destruct (String.eqb k "b") eqn:B, (String.eqb k "a") eqn:A, (String.eqb k "c") eqn:C;
    repeat match goal with H : String.eqb _ _ = true |- _ => apply String.eqb_eq in H end;
    subst; congruence.
Qed.

(* Told as seen although its transaction still ran. *)
Example a_forgotten_subtransaction_is_refused :
  verdict (of_parts honest_units history [] [("b", "b3"); ("c", "c4")]) = false.
Proof. reflexivity. Qed.

Example a_dropped_unit_is_refused :
  verdict (of_parts [left_part [("a", "a2")]] history [(5, 3)] [("b", "b3"); ("c", "c4")]) = false.
Proof. reflexivity. Qed.

Example a_gap_between_units_is_refused :
  verdict (of_parts [left_part [("a", "a2")]; ReadUnit (Range (Some "c") None) 11 13 snap [("c", "c4")]]
                    history [(5, 3)] [("b", "b3"); ("c", "c4")]) = false.
Proof. reflexivity. Qed.

Example an_overlap_of_units_is_refused :
  verdict (of_parts [left_part [("a", "a2")]; ReadUnit (Range (Some "a") None) 11 13 snap [("c", "c4")]]
                    history [(5, 3)] [("b", "b3"); ("c", "c4")]) = false.
Proof. reflexivity. Qed.

Example a_last_unit_that_ends_is_refused :
  verdict (of_parts [left_part [("a", "a2")]; ReadUnit (Range (Some "b") (Some "d")) 11 13 snap [("c", "c4")]]
                    history [(5, 3)] [("b", "b3"); ("c", "c4")]) = false.
Proof. reflexivity. Qed.

Example a_row_of_another_unit_is_refused :
  verdict (of_parts [left_part [("a", "a2"); ("c", "c4")]; right_part [("c", "c4")]]
                    history [(5, 3)] [("b", "b3"); ("c", "c4")]) = false.
Proof. reflexivity. Qed.

Example a_log_in_disorder_is_refused :
  verdict (of_parts honest_units
    [Change 11 2 (Some "a") (Some "a2"); Change 13 4 (Some "c") (Some "c4"); Change 12 3 (Some "b") (Some "b3");
     Change 12 5 (Some "a") None] [(5, 3)] [("b", "b3"); ("c", "c4")]) = false.
Proof. reflexivity. Qed.

Example a_hi_before_what_was_seen_is_refused :
  verdict (of_parts [ReadUnit (Range None None) 11 12 snap [("a", "a2"); ("c", "c4")]]
                    history [(5, 3)] [("b", "b3"); ("c", "c4")]) = false.
Proof. reflexivity. Qed.

Example a_lo_after_what_was_not_seen_is_refused :
  verdict (of_parts [ReadUnit (Range None None) 12 13 snap [("a", "a2"); ("c", "c4")]]
                    history [(5, 3)] [("b", "b3"); ("c", "c4")]) = false.
Proof. reflexivity. Qed.

Example a_snapshot_older_than_the_log_is_refused :
  verdict (Certificate 10 (Snapshot 8 [3; 4; 5]) 13 honest_units history [(5, 3)] [("b", "b3"); ("c", "c4")])
  = false.
Proof. reflexivity. Qed.

Example a_row_too_many_is_refused :
  verdict (of_parts honest_units history [(5, 3)] [("b", "b3"); ("c", "c4"); ("z", "z")]) = false.
Proof. reflexivity. Qed.

Example a_row_that_lacks_is_refused : verdict (of_parts honest_units history [(5, 3)] [("c", "c4")]) = false.
Proof. reflexivity. Qed.

Example another_value_is_refused :
  verdict (of_parts honest_units history [(5, 3)] [("b", "b2"); ("c", "c4")]) = false.
Proof. reflexivity. Qed.

(* Adjacent, but there and back again: two units hold "c". *)
Example units_that_go_back_are_refused :
  verdict (of_parts [ReadUnit (Range None (Some "m")) 11 13 snap [("a", "a2"); ("c", "c4")];
                     ReadUnit (Range (Some "m") (Some "b")) 11 13 snap []; right_part [("c", "c4")]]
                    history [(5, 3)] [("b", "b3"); ("c", "c4")]) = false.
Proof. reflexivity. Qed.

Example a_row_that_was_found_twice_is_refused :
  verdict (of_parts [left_part [("a", "a2"); ("a", "a2")]; right_part [("c", "c4")]]
                    history [(5, 3)] [("b", "b3"); ("c", "c4")]) = false.
Proof. reflexivity. Qed.

Example a_claim_made_twice_is_refused :
  verdict (of_parts honest_units history [(5, 3)] [("b", "b3"); ("c", "c4"); ("c", "c4")]) = false.
Proof. reflexivity. Qed.
