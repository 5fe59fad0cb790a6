(* Units as half-open ranges of keys, from below all keys to above all keys: each key is in exactly one.

   The order of keys belongs to the source (a collation, perhaps). What a plan says of itself, that one range
   ends where the next begins, is checked by equality of bounds alone. *)
Require Import List Bool.
Import ListNotations.
Set Implicit Arguments.

Section Ranges.
Variable K : Type.
Variable eqb : K -> K -> bool.
Variable ltb : K -> K -> bool.

(* No bound is below, or above, all keys. *)
Record range := Range { low : option K; high : option K }.

Definition from_low (b : option K) (k : K) : bool := match b with Some b => negb (ltb k b) | None => true end.
Definition below_high (b : option K) (k : K) : bool := match b with Some b => ltb k b | None => true end.
Definition inside (r : range) (k : K) : bool := from_low (low r) k && below_high (high r) k.

Definition same (a b : option K) : bool :=
  match a, b with Some a, Some b => eqb a b | None, None => true | _, _ => false end.

(* Adjacent from a bound up to the end of all keys. *)
Fixpoint adjacent (from : option K) (rs : list range) : bool :=
  match rs with
  | [] => false
  | r :: t => same (low r) from &&
              match high r with None => match t with [] => true | _ => false end | b => adjacent b t end
  end.
Definition whole (rs : list range) : bool := adjacent None rs.

(* Each range ends above its beginning, in the order of the source. *)
Definition ascending (rs : list range) : bool :=
  forallb (fun r => match low r, high r with Some a, Some b => ltb a b | _, _ => true end) rs.

Hypothesis eqb_true : forall a b, eqb a b = true -> a = b.

Lemma same_true : forall a b, same a b = true -> a = b.
Proof. intros [a|] [b|]; simpl; intro H; try discriminate; auto. f_equal. auto. Qed.

Lemma covered : forall rs from k,
  adjacent from rs = true -> from_low from k = true -> exists r, In r rs /\ inside r k = true.
Proof.
  induction rs as [|r rs IH]; intros from k H Hk; [discriminate|]. simpl in H.
  apply andb_true_iff in H. destruct H as [Hl H]. apply same_true in Hl.
  destruct (below_high (high r) k) eqn:Eh.
  - exists r. split; [left; auto|]. unfold inside. rewrite Hl, Hk. auto.
  - destruct (high r) as [b|] eqn:Er; [|discriminate].
    destruct (IH (Some b) k H) as [x [Hx Hi]].
    + simpl in *. now rewrite Eh.
    + exists x. split; [right|]; auto.
Qed.

(* Every key, also one that nobody knew of, is in a unit.
   Premises: the bounds meet (checked, by equality). Nothing is asked of the order. *)
Theorem every_key_has_a_unit : forall rs k, whole rs = true -> exists r, In r rs /\ inside r k = true.
Proof. intros rs k H. now apply (covered rs None). Qed.

Hypothesis ltb_trans : forall a b c, ltb a b = true -> ltb b c = true -> ltb a c = true.

Definition holders (rs : list range) (k : K) := filter (fun r => inside r k) rs.

Lemma none_below : forall rs b k,
  adjacent (Some b) rs = true -> ascending rs = true -> ltb k b = true -> holders rs k = [].
Proof.
  induction rs as [|r rs IH]; intros b k H Ha Hk; auto. simpl in H, Ha.
  apply andb_true_iff in H. destruct H as [Hl H]. apply same_true in Hl.
  apply andb_true_iff in Ha. destruct Ha as [Hr Ha]. rewrite Hl in Hr.
  unfold holders. simpl. unfold inside. rewrite Hl. simpl. rewrite Hk. simpl.
  destruct (high r) as [h|] eqn:Eh.
  - apply (IH h k); auto. eapply ltb_trans; eauto.
  - destruct rs; [auto|discriminate].
Qed.

Lemma one_holder : forall rs from k,
  adjacent from rs = true -> ascending rs = true -> from_low from k = true -> length (holders rs k) = 1.
Proof.
  induction rs as [|r rs IH]; intros from k H Ha Hk; [discriminate|]. simpl in H, Ha.
  apply andb_true_iff in H. destruct H as [Hl H]. apply same_true in Hl.
  apply andb_true_iff in Ha. destruct Ha as [Hr Ha].
  unfold holders. simpl. unfold inside at 1. rewrite Hl, Hk. simpl.
  destruct (high r) as [h|] eqn:Eh; simpl.
  - destruct (ltb k h) eqn:E.
    + simpl. f_equal. fold (holders rs k). now rewrite (@none_below rs h k).
    + apply (IH (Some h) k); auto. simpl. now rewrite E.
  - destruct rs; [auto|discriminate].
Qed.

(* Every key is in exactly one unit.
   Premises: the bounds meet and ascend (both checked); the order is transitive (the source's is). *)
Theorem every_key_has_one_unit : forall rs k,
  whole rs = true -> ascending rs = true -> length (holders rs k) = 1.
Proof. intros rs k H Ha. now apply (one_holder rs None). Qed.

(* A unit that is cut in two leaves the plan whole. Premise: eqb knows equal bounds as equal. *)
Theorem split_leaves_the_plan_whole : forall before r after_ b from,
  (forall a, eqb a a = true) -> adjacent from (before ++ r :: after_) = true ->
  adjacent from (before ++ Range (low r) (Some b) :: Range (Some b) (high r) :: after_) = true.
Proof.
  induction before as [|x before IH]; intros r after_ b from He H; simpl in *.
  - apply andb_true_iff in H. destruct H as [Hl H]. rewrite Hl, He. simpl. auto.
  - apply andb_true_iff in H. destruct H as [Hl H]. rewrite Hl. simpl.
    destruct (high x); auto. destruct (before ++ r :: after_) eqn:E; [|discriminate].
    destruct before; discriminate.
Qed.
End Ranges.
