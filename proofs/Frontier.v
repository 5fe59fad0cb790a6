(* Transaction-closed frontiers: where a cut is also what a transaction would have seen. *)
Require Import List Bool NArith Lia.
Require Import Replay VirtualCut.
Import ListNotations.
Set Implicit Arguments.
Local Open Scope N_scope.

Section Frontier.
Variables K V : Type.
Notation entry := (entry K V).
Variable top : N -> N.   (* a subtransaction's id to that of its transaction *)

(* No transaction lies on both sides. *)
Definition closed (l : list entry) (f : N) : Prop :=
  forall a b, In a l -> In b l -> top (xid a) = top (xid b) -> at_ a <= f -> at_ b <= f.

(* The same, decided. *)
Definition closed_at (l : list entry) (f : N) : bool :=
  forallb (fun a => negb (at_ a <=? f) ||
    forallb (fun b => negb (top (xid a) =? top (xid b)) || (at_ b <=? f)) l) l.

(* The transactions of which something lies at or before f. *)
Definition begun (l : list entry) (f : N) (x : N) : bool :=
  existsb (fun e => (top (xid e) =? x) && (at_ e <=? f)) l.
Definition of_transactions (which : N -> bool) (l : list entry) := filter (fun e => which (top (xid e))) l.

(* Who is said to be closed is. No premise: it is decided. *)
Theorem closed_at_is_sound : forall l f, closed_at l f = true -> closed l f.
Proof.
  intros l f H a b Ha Hb Ht Hf. unfold closed_at in H. rewrite forallb_forall in H. specialize (H a Ha).
  apply N.leb_le in Hf. rewrite Hf in H. simpl in H. rewrite forallb_forall in H. specialize (H b Hb).
  apply N.eqb_eq in Ht. rewrite Ht in H. simpl in H. now apply N.leb_le.
Qed.

(* Where each event counts at its transaction's commit, every frontier is closed.
   Premise: the place of an event is a function of its transaction. *)
Theorem commit_places_are_closed : forall l (commit : N -> N) f,
  (forall e, In e l -> at_ e = commit (top (xid e))) -> closed l f.
Proof. intros l commit f H a b Ha Hb Ht Hf. rewrite (H b Hb), <- Ht, <- (H a Ha). auto. Qed.

(* The source at a closed frontier is what some set of whole transactions has left, in the order of the log.
   Premise: the frontier is closed. *)
Theorem closed_cut_is_transactional : forall s0 l f,
  closed l f -> source s0 l f = run s0 (events (of_transactions (begun l f) l)).
Proof.
  intros s0 l f H. unfold source, upto, of_transactions. do 2 f_equal. apply filter_ext_in.
  intros e He. destruct (at_ e <=? f) eqn:E; symmetry.
  - unfold begun. apply existsb_exists. exists e. split; auto. now rewrite N.eqb_refl, E.
  - apply not_true_iff_false. intro B. unfold begun in B. apply existsb_exists in B.
    destruct B as [a [Ha Hb]]. apply andb_true_iff in Hb. destruct Hb as [Ht Hf].
    apply N.eqb_eq in Ht. apply N.leb_le in Hf. apply N.leb_gt in E.
    specialize (H a e Ha He Ht Hf). lia.
Qed.
End Frontier.
