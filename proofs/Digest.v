(* The digest of a state: a sum over its cells, extended event by event.

   First in any abelian group, then as it is computed: sums modulo 2^128. That equal digests mean equal states
   is no theorem: it rests on the key of the digest (see README.md). *)
Require Import List Bool ZArith NArith Lia Permutation.
Require Import Replay.
Import ListNotations.
Set Implicit Arguments.

Section Group.
Variables (G : Type) (add : G -> G -> G) (zero : G) (opp : G -> G).
Hypothesis add_comm : forall a b, add a b = add b a.
Hypothesis add_assoc : forall a b c, add a (add b c) = add (add a b) c.
Hypothesis add_zero : forall a, add zero a = a.
Hypothesis add_opp : forall a, add a (opp a) = zero.

Variables K V : Type.
Variable keq : forall a b : K, {a = b} + {a <> b}.
Variable h : K -> option V -> G.

Definition digest (ks : list K) (s : state K V) : G := fold_right (fun k a => add (h k (s k)) a) zero ks.

Lemma digest_same : forall ks s t, (forall k, In k ks -> s k = t k) -> digest ks s = digest ks t.
Proof.
  induction ks as [|a ks IH]; simpl; intros s t H; auto. rewrite H by auto. f_equal. apply IH. auto.
Qed.

Lemma digest_app : forall a b s, digest (a ++ b) s = add (digest a s) (digest b s).
Proof. induction a as [|k a IH]; simpl; intros b s; [now rewrite add_zero|]. now rewrite IH, add_assoc. Qed.

Lemma digest_perm : forall a b s, Permutation a b -> digest a s = digest b s.
Proof.
  intros a b s P. induction P; simpl; auto; [now rewrite IHP| |congruence].
  now rewrite !add_assoc, (add_comm (h y (s y))).
Qed.

Definition others (cs ks : list K) := filter (fun k => if in_dec keq k cs then false else true) ks.

Lemma nodup_apart : forall a b : list K, NoDup a -> NoDup b -> (forall x, In x b -> ~ In x a) -> NoDup (a ++ b).
Proof.
  induction a as [|x a IH]; simpl; auto. intros b Ha Hb Hx. inversion Ha; subst. constructor.
  - rewrite in_app_iff. intros [H|H]; auto. apply (Hx x H). now left.
  - apply IH; auto. intros y Hy Hin. apply (Hx y Hy). now right.
Qed.

Lemma in_others : forall cs ks k, In k (others cs ks) <-> In k ks /\ ~ In k cs.
Proof.
  intros cs ks k. unfold others. rewrite filter_In. destruct (in_dec keq k cs); split; intros [H1 H2]; auto;
    solve [discriminate|tauto].
Qed.

Lemma digest_parts : forall cs ks s, NoDup cs -> NoDup ks -> incl cs ks ->
  digest ks s = add (digest cs s) (digest (others cs ks) s).
Proof.
  intros cs ks s Hc Hk Hi. rewrite <- digest_app. apply digest_perm. apply NoDup_Permutation; auto.
  - apply nodup_apart; auto; [now apply NoDup_filter|]. intros x Hx. apply in_others in Hx. tauto.
  - intro x. rewrite in_app_iff, in_others. specialize (Hi x). destruct (in_dec keq x cs); tauto.
Qed.

(* The step: take away what the event's cells were, add what they are.
   Premises: ks are all cells, each once; cs are those that the event tells of, each once; the values before it
   are known (before-images, or a ledger of our own). *)
Theorem digest_step : forall ks cs s e, NoDup ks -> NoDup cs -> incl cs ks ->
  (forall k, ~ In k cs -> e k = None) ->
  digest ks (upd s e) = add (add (digest ks s) (opp (digest cs s))) (digest cs (upd s e)).
Proof.
  intros ks cs s e Hk Hc Hi He.
  rewrite (@digest_parts cs ks (upd s e)), (@digest_parts cs ks s) by auto.
  replace (digest (others cs ks) (upd s e)) with (digest (others cs ks) s).
  - set (a := digest cs s). set (b := digest cs (upd s e)). set (r := digest (others cs ks) s).
    rewrite (add_comm a r), <- (add_assoc r a), add_opp, (add_comm r zero), add_zero. apply add_comm.
  - apply digest_same. intros k H. unfold upd. apply in_others in H. rewrite He; tauto.
Qed.

(* What an event does not tell of keeps its digest: other buckets stay as they are.
   Premise: the event tells of no cell of the bucket. *)
Theorem other_buckets_stay : forall ks s e, (forall k, In k ks -> e k = None) -> digest ks (upd s e) = digest ks s.
Proof. intros ks s e H. apply digest_same. intros k Hk. unfold upd. now rewrite H. Qed.

Hypothesis absent_is_zero : forall k, h k None = zero.

Lemma digest_absent : forall ks s, (forall k, In k ks -> s k = None) -> digest ks s = zero.
Proof.
  induction ks as [|k ks IH]; simpl; intros s H; auto. rewrite H, absent_is_zero, add_zero by auto. auto.
Qed.

(* TRUNCATE resets the digest. Premises: what is not there counts nothing; the event empties every cell. *)
Theorem truncate_resets : forall ks s e, (forall k, In k ks -> e k = Some None) -> digest ks (upd s e) = zero.
Proof. intros ks s e H. apply digest_absent. intros k Hk. unfold upd. now rewrite H. Qed.

(* The digest is one of the cells that are there, whatever else is counted.
   Premises: each cell once; those beyond are empty; what is not there counts nothing. *)
Theorem digest_is_of_what_is_there : forall ks wider s, NoDup ks -> NoDup wider -> incl ks wider ->
  (forall k, In k wider -> ~ In k ks -> s k = None) -> digest wider s = digest ks s.
Proof.
  intros ks wider s Hk Hw Hi Hs. rewrite (@digest_parts ks wider s) by auto.
  rewrite (@digest_absent (others ks wider)); [now rewrite add_comm, add_zero|].
  intros k H. apply in_others in H. apply Hs; tauto.
Qed.
End Group.

(* --- as it is computed ------------------------------------------------------------------------------------ *)

Local Open Scope N_scope.
Definition modulus : N := 2 ^ 128.
Definition plus (a b : N) : N := (a + b) mod modulus.
Definition extend (d before after_ : N) : N := (d + (modulus - before mod modulus) + after_) mod modulus.

Section Computed.
Variables K V : Type.
Variable keq : forall a b : K, {a = b} + {a <> b}.
Variable h : K -> option V -> N.

Definition sum (ks : list K) (s : state K V) : N := digest plus 0 h ks s.
Definition integers (ks : list K) (s : state K V) : Z := digest Z.add 0%Z (fun k i => Z.of_N (h k i)) ks s.

Lemma modulus_positive : (0 < Z.of_N modulus)%Z.
Proof. unfold modulus. lia. Qed.

Lemma sum_integers : forall ks s, Z.of_N (sum ks s) = (integers ks s mod Z.of_N modulus)%Z.
Proof.
  pose proof modulus_positive as P. unfold sum, integers.
  induction ks as [|k ks IH]; intro s; simpl; [now rewrite Z.mod_0_l by lia|].
  unfold plus at 1. rewrite N2Z.inj_mod, N2Z.inj_add, IH. apply Zplus_mod_idemp_r.
Qed.

Lemma extend_integers : forall d b a,
  Z.of_N (extend d b a) = ((Z.of_N d - Z.of_N b + Z.of_N a) mod Z.of_N modulus)%Z.
Proof.
  intros d b a. pose proof modulus_positive as P. unfold extend.
  rewrite N2Z.inj_mod, !N2Z.inj_add, N2Z.inj_sub, N2Z.inj_mod
    by (apply N.lt_le_incl, N.mod_lt; lia).
  set (m := Z.of_N modulus) in *.
  replace (Z.of_N d + (m - Z.of_N b mod m) + Z.of_N a)%Z
    with ((Z.of_N d + Z.of_N a - Z.of_N b mod m) + 1 * m)%Z by lia.
  rewrite Z.mod_add by lia. rewrite Zminus_mod_idemp_r. f_equal. lia.
Qed.

(* The computed step is the step: the digest after an event from the digest before it and its cells' alone.
   Premises: as of `digest_step`. *)
Theorem computed_step : forall ks cs s e, NoDup ks -> NoDup cs -> incl cs ks ->
  (forall k, ~ In k cs -> e k = None) ->
  sum ks (upd s e) = extend (sum ks s) (sum cs s) (sum cs (upd s e)).
Proof.
  intros ks cs s e Hk Hc Hi He. pose proof modulus_positive as P. apply N2Z.inj.
  rewrite extend_integers, !sum_integers. unfold integers at 1.
  rewrite (@digest_step Z Z.add 0%Z Z.opp) with (cs := cs) by (auto; intros; lia).
  fold (integers ks s) (integers cs s) (integers cs (upd s e)).
  set (m := Z.of_N modulus) in *. rewrite Zplus_mod_idemp_r.
  rewrite <- (Zplus_mod_idemp_l (_ - _)), <- Zminus_mod, Zplus_mod_idemp_l. f_equal; lia.
Qed.
End Computed.
