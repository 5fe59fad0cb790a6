(* The exact splice of a unit's rows and the log where a read sees a set of transactions (PostgreSQL): events
   of those that its snapshot saw are in the rows and are dropped, all others follow, in the order of commits.

   `sees`, `includes` and `bracket` are those of core/visibility.py and core/cut.py. *)
Require Import List Bool NArith Lia.
Require Import Replay VirtualCut.
Import ListNotations.
Set Implicit Arguments.
Local Open Scope N_scope.

(* What was over when it was taken: below xmax, and not among those that were running (top-level ids). *)
Record snapshot := Snapshot { xmax : N; running : list N }.
Definition sees (s : snapshot) (x : N) : bool := (x <? xmax s) && negb (existsb (N.eqb x) (running s)).

(* Of the ids that one snapshot does not see as they came later, the other one must see none. *)
Definition includes (s other : snapshot) : bool :=
  forallb (fun x => negb (sees other x)) (running s) &&
  (N.of_nat (length (filter (fun x => (xmax s <=? x) && (x <? xmax other)) (nodup N.eq_dec (running other))))
   =? xmax other - xmax s).

Lemma all_in_range : forall a b (l : list N), NoDup l -> (forall x, In x l -> a <= x < b) ->
  N.of_nat (length l) = b - a -> forall x, a <= x < b -> In x l.
Proof.
  intros a b l Hn Hr Hl x Hx.
  set (r := map (fun i => a + N.of_nat i) (seq 0 (N.to_nat (b - a)))).
  assert (Hrl : length r = N.to_nat (b - a)) by (unfold r; now rewrite map_length, seq_length).
  assert (Hin : forall y, a <= y < b <-> In y r).
  { intro y. unfold r. rewrite in_map_iff. split.
    - intro Hy. exists (N.to_nat (y - a)). split; [lia|]. apply in_seq. lia.
    - intros [i [Hi Hs]]. apply in_seq in Hs. lia. }
  assert (incl r l). { apply NoDup_length_incl; auto; [lia|]. intros y Hy. apply Hin. auto. }
  apply H. now apply Hin.
Qed.

(* What one snapshot sees, one that includes it sees. No premise: it is decided. *)
Theorem includes_is_sound : forall s other x, includes s other = true -> sees other x = true -> sees s x = true.
Proof.
  intros s other x Hi Hx. unfold includes in Hi. apply andb_true_iff in Hi. destruct Hi as [Hm Hc].
  assert (Hrun : existsb (N.eqb x) (running s) = false).
  { apply not_true_iff_false. intro H. apply existsb_exists in H. destruct H as [y [Hy He]].
    apply N.eqb_eq in He. subst y. rewrite forallb_forall in Hm. specialize (Hm x Hy). now rewrite Hx in Hm. }
  unfold sees. rewrite Hrun, andb_true_r. apply N.ltb_lt.
  destruct (N.lt_ge_cases x (xmax s)) as [Hlt|Hge]; auto. exfalso.
  unfold sees in Hx. apply andb_true_iff in Hx. destruct Hx as [Hb Hn]. apply N.ltb_lt in Hb.
  apply N.eqb_eq in Hc. eapply all_in_range with (x := x) in Hc.
  - apply filter_In in Hc. destruct Hc as [Hc _]. apply nodup_In in Hc.
    apply negb_true_iff, not_true_iff_false in Hn. apply Hn. apply existsb_exists. exists x.
    split; auto. apply N.eqb_refl.
  - apply NoDup_filter, NoDup_nodup.
  - intros y Hy. apply filter_In in Hy. destruct Hy as [_ Hy]. apply andb_true_iff in Hy.
    rewrite N.leb_le, N.ltb_lt in Hy. auto.
  - lia.
Qed.

(* --- lo and hi -------------------------------------------------------------------------------------------- *)

(* Commits in order: where, and whether it was seen. hi is the last that was seen, lo the place before the
   first that was not, hi at the latest. *)
Definition last_seen (start : N) (cs : list (N * bool)) : N :=
  fold_right (fun (c : N * bool) m => if snd c then N.max (fst c) m else m) start cs.
Definition unseen_before (h : N) (c : N * bool) : bool := negb (snd c) && (fst c <? h).
Definition bracket (start : N) (cs : list (N * bool)) : N * N :=
  let h := last_seen start cs in
  match find (unseen_before h) cs with Some c => (fst c - 1, h) | None => (h, h) end.

Fixpoint commits_ordered (cs : list (N * bool)) : Prop :=
  match cs with [] => True | c :: t => (forall x, In x t -> fst c < fst x) /\ commits_ordered t end.

Lemma last_seen_bounds : forall cs start,
  start <= last_seen start cs /\ (forall c, In c cs -> snd c = true -> fst c <= last_seen start cs) /\
  (last_seen start cs = start \/ In (last_seen start cs, true) cs).
Proof.
  induction cs as [|[p b] cs IH]; intro start; simpl.
  - repeat split; auto; [lia|tauto].
  - destruct (IH start) as [H1 [H2 H3]]. destruct b; simpl.
    + repeat split; [lia| |].
      * intros c [<-|Hc] Hs; simpl; [lia|]. specialize (H2 c Hc Hs). lia.
      * destruct (N.max_spec p (last_seen start cs)) as [[_ E]|[_ E]]; rewrite E; tauto.
    + repeat split; auto; [|tauto]. intros c [<-|Hc] Hs; [discriminate|auto].
Qed.

Lemma commit_once : forall cs p b b', commits_ordered cs -> In (p, b) cs -> In (p, b') cs -> b = b'.
Proof.
  induction cs as [|c cs IH]; simpl; intros p b b' Hco H1 H2; [tauto|]. destruct Hco as [Hc Ho].
  destruct H1 as [->|H1], H2 as [H2|H2].
  - congruence.
  - specialize (Hc _ H2). simpl in Hc. lia.
  - subst c. specialize (Hc _ H1). simpl in Hc. lia.
  - eauto.
Qed.

Lemma find_first : forall p cs c, commits_ordered cs -> find p cs = Some c ->
  In c cs /\ p c = true /\ forall x, In x cs -> p x = true -> fst c <= fst x.
Proof.
  induction cs as [|a cs IH]; simpl; intros c Hao H; [discriminate|]. destruct Hao as [Ha Ho].
  destruct (p a) eqn:E.
  - inversion H; subst. repeat split; auto. intros x [<-|Hx] _; [lia|]. specialize (Ha x Hx). lia.
  - destruct (IH c Ho H) as [H1 [H2 H3]]. repeat split; auto. intros x [<-|Hx] Hp; [congruence|auto].
Qed.

(* The bracket lies within the log; all that was seen is at or before hi, all that was not is after lo.
   Premises: the commits are in order, each at a place of its own after the log's start, and they are all that
   the snapshot could have seen (the log is read up to where it ended after the snapshot was taken). *)
Theorem bracket_is_sound : forall start cs l h,
  commits_ordered cs -> (forall c, In c cs -> start < fst c) -> bracket start cs = (l, h) ->
  start <= l <= h /\ (forall c, In c cs -> snd c = true -> fst c <= h) /\
  (forall c, In c cs -> fst c <= l -> snd c = true).
Proof.
  intros start cs l h Ho Hs H. unfold bracket in H.
  destruct (last_seen_bounds cs start) as [B1 [B2 B3]].
  set (m := last_seen start cs) in *. destruct (find (unseen_before m) cs) as [c|] eqn:E; inversion H; subst.
  - destruct (find_first _ _ Ho E) as [Hc [Hp Hf]]. unfold unseen_before in Hp.
    apply andb_true_iff in Hp. destruct Hp as [Hn Hlt]. apply N.ltb_lt in Hlt. specialize (Hs c Hc).
    repeat split; try lia; auto. intros x Hx Hle. destruct (snd x) eqn:Ex; auto. exfalso.
    assert (Hu : unseen_before m x = true) by (unfold unseen_before; rewrite Ex; simpl; apply N.ltb_lt; lia).
    specialize (Hf x Hx Hu). lia.
  - repeat split; try lia; auto. intros [p b] Hx Hle. simpl in *. destruct b; auto. exfalso.
    pose proof (find_none _ _ E _ Hx) as Hu. unfold unseen_before in Hu. simpl in Hu. apply N.ltb_ge in Hu.
    assert (p = m) by lia. subst p. specialize (Hs _ Hx). simpl in Hs. destruct B3 as [B3|B3]; [lia|].
    pose proof (commit_once _ _ _ _ Ho Hx B3). discriminate.
Qed.

(* --- the splice ------------------------------------------------------------------------------------------- *)

Section Exact.
Variables K V : Type.
Notation entry := (entry K V).
Notation state := (state K V).
Variable top : N -> N.   (* a subtransaction's id to that of its transaction *)

Definition seen (s : snapshot) (e : entry) : bool := sees s (top (xid e)).
Definition unseen (s : snapshot) (e : entry) : bool := negb (seen s e).

(* The rows are what the transactions that the snapshot sees have left, in the order of their commits. *)
Definition read_under (s : snapshot) (s0 : state) (l : list entry) (u : unit_ K V) : Prop :=
  forall k, owns u k = true -> found u k = run s0 (events (filter (seen s) l)) k.

(* Who changes a cell after somebody else sees what that one did: rows are locked until a transaction is over. *)
Fixpoint locked (s : snapshot) (k : K) (l : list entry) : Prop :=
  match l with
  | [] => True
  | e :: t => (says e k <> None -> seen s e = false ->
               forall x, In x t -> says x k <> None -> seen s x = false) /\ locked s k t
  end.

(* What lies at or before lo was seen, what was seen lies at or before hi. *)
Definition bracketed (s : snapshot) (l : list entry) (u : unit_ K V) : Prop :=
  forall e, In e l -> (at_ e <= lo u -> seen s e = true) /\ (seen s e = true -> at_ e <= hi u).

(* The rows of the unit, and of the log after its lo what the snapshot did not see. *)
Definition spliced (s : snapshot) (l : list entry) (u : unit_ K V) (f : N) : state :=
  run (found u) (events (filter (unseen s) (between (lo u) f l))).

Lemma filter_twice : forall A (p q : A -> bool) l, filter p (filter q l) = filter (fun x => q x && p x) l.
Proof.
  induction l as [|a l IH]; simpl; auto. destruct (q a); simpl; [destruct (p a)|]; now rewrite IH.
Qed.

Lemma locked_filter : forall s k p l, locked s k l -> locked s k (filter p l).
Proof.
  induction l as [|e l IH]; simpl; auto. intros [H Hl]. destruct (p e); simpl; auto. split; auto.
  intros H1 H2 x Hx. apply filter_In in Hx. apply H; tauto.
Qed.

(* Of a cell that is locked, all that was seen comes before all that was not. *)
Lemma told_splits : forall s k l, locked s k l ->
  told k (events l) = match told k (events (filter (unseen s) l)) with
                      | Some i => Some i | None => told k (events (filter (seen s) l)) end.
Proof.
  induction l as [|e l IH]; auto. intros [He Hl]. specialize (IH Hl). simpl.
  unfold unseen at 1. destruct (seen s e) eqn:Es; simpl; rewrite IH.
  - destruct (told k (events (filter (unseen s) l))); auto.
  - destruct (told k (events (filter (unseen s) l))); auto.
    destruct (says e k) eqn:Ee; [|now destruct (told k (events (filter (seen s) l)))].
    replace (told k (events (filter (seen s) l))) with (@None (option V)); auto.
    symmetry. apply told_none. intros x Hx. apply in_map_iff in Hx. destruct Hx as [y [<- Hy]].
    apply filter_In in Hy. destruct Hy as [Hy Hsy]. destruct (says y k) eqn:Ey; auto. exfalso.
    rewrite He in Hsy; auto; congruence.
Qed.

(* The splice is exact: at any frontier at or after hi it is the source, though the snapshot need not be any
   place of the log. Premises: rows read under the snapshot, what lies before the log included (`read_under`);
   rows are locked (`locked`); lo and hi bracket the snapshot (`bracketed`); f >= hi; the log is whole and in
   the order of commits; `top` knows the subtransactions. *)
Theorem splice_is_exact : forall s s0 l u f k,
  read_under s s0 l u -> locked s k l -> bracketed s l u -> owns u k = true -> hi u <= f ->
  spliced s l u f k = source s0 l f k.
Proof.
  intros s s0 l u f k Hr Hl Hb Hk Hf. unfold spliced, source. rewrite !run_told, (Hr k Hk), run_told.
  rewrite (@told_splits s k (upto f l)) by now apply locked_filter.
  replace (filter (unseen s) (upto f l)) with (filter (unseen s) (between (lo u) f l)).
  - replace (filter (seen s) (upto f l)) with (filter (seen s) l).
    + now destruct (told k (events (filter (unseen s) (between (lo u) f l)))).
    + unfold upto. rewrite filter_twice. apply filter_ext_in. intros e He. destruct (Hb e He) as [_ H2].
      destruct (seen s e); [|now rewrite andb_false_r]. specialize (H2 eq_refl).
      symmetry. rewrite andb_true_r. apply N.leb_le. lia.
  - unfold between, after, upto. rewrite !filter_twice. apply filter_ext_in. intros e He.
    destruct (Hb e He) as [H1 _]. unfold unseen. destruct (seen s e); simpl; [now rewrite !andb_false_r|].
    rewrite !andb_true_r. replace (lo u <? at_ e) with true; [now rewrite andb_true_r|].
    symmetry. apply N.ltb_lt. destruct (N.lt_ge_cases (lo u) (at_ e)); auto. discriminate H1; auto.
Qed.

(* Of a transaction, its subtransactions included, the splice takes all that the log has between, or nothing.
   Premise: `top` gives one id to all of it. *)
Theorem splice_takes_whole_transactions : forall s l (u : unit_ K V) f a b,
  top (xid a) = top (xid b) -> In a (filter (unseen s) (between (lo u) f l)) -> In b (between (lo u) f l) ->
  In b (filter (unseen s) (between (lo u) f l)).
Proof.
  intros s l u f a b Ht Ha Hb. apply filter_In in Ha. apply filter_In. split; auto.
  destruct Ha as [_ Ha]. unfold unseen, seen in *. now rewrite <- Ht.
Qed.

(* Before the first place of some kind, and after it; or there is none. *)
Lemma first_such : forall A (p : A -> bool) l, (forall x, In x l -> p x = false) \/
  exists a e b, l = a ++ e :: b /\ p e = true /\ forall x, In x a -> p x = false.
Proof.
  induction l as [|x l IH]; [left; intros ? []|]. destruct (p x) eqn:E.
  - right. exists [], x, l. repeat split; auto. intros ? [].
  - destruct IH as [H|[a [e [b [-> [He Ha]]]]]].
    + left. intros y [<-|Hy]; auto.
    + right. exists (x :: a), e, b. repeat split; auto. intros y [<-|Hy]; auto.
Qed.

Definition tells (k : K) (e : entry) : bool := match says e k with Some _ => true | None => false end.

Lemma told_alike : forall (p q : entry -> bool) k l,
  (forall x, In x l -> says x k <> None -> p x = q x) ->
  told k (events (filter p l)) = told k (events (filter q l)).
Proof.
  induction l as [|e l IH]; intro H; auto. simpl.
  assert (T : told k (events (filter p l)) = told k (events (filter q l))).
  { apply IH. intros x Hx. apply H. now right. }
  destruct (says e k) eqn:E.
  - rewrite (H e) by (simpl; auto; congruence). destruct (q e); simpl; now rewrite T.
  - destruct (p e), (q e); simpl; rewrite ?T, ?E; auto; now destruct (told k (events (filter q l))).
Qed.

Lemma ordered_around : forall (a b : list entry) e, ordered (a ++ e :: b) ->
  (forall x, In x a -> at_ x <= at_ e) /\ (forall x, In x b -> at_ e <= at_ x).
Proof.
  induction a as [|y a IH]; simpl; intros b e [H Ho].
  - split; [tauto|auto].
  - destruct (IH b e Ho) as [H1 H2]. split; auto. intros x [<-|Hx]; auto. apply H, in_elt.
Qed.

Lemma locked_rest : forall s k a b, locked s k (a ++ b) -> locked s k b.
Proof. induction a as [|e a IH]; simpl; auto. intros b [_ H]. auto. Qed.

(* What is read under a snapshot was, cell by cell, the source's somewhere between lo and hi: so such a unit is
   as good for `run_is_cut` as one that was read at a place. Premises: those of the splice; and no two
   transactions commit at one place. *)
Theorem read_under_a_snapshot_is_faithful : forall s s0 l u,
  ordered l -> lo u <= hi u -> read_under s s0 l u -> bracketed s l u ->
  (forall k, owns u k = true -> locked s k l) ->
  (forall a b, In a l -> In b l -> at_ a = at_ b -> seen s a = seen s b) -> faithful s0 l u.
Proof.
  intros s s0 l u Ho Hlh Hr Hb Hl Hp. split; auto. intros k Hk. specialize (Hl k Hk).
  destruct (first_such (fun e => unseen s e && tells k e && (at_ e <=? hi u)) l)
    as [Hn|[a [e [b [E [He Ha]]]]]].
  - exists (hi u). split; [lia|]. rewrite <- (@splice_is_exact s s0 l u (hi u) k) by (auto; lia).
    unfold spliced. rewrite run_told.
    replace (told k (events (filter (unseen s) (between (lo u) (hi u) l)))) with (@None (option V)); auto.
    symmetry. apply told_none. intros x Hx. apply in_map_iff in Hx. destruct Hx as [y [<- Hy]].
    apply filter_In in Hy. destruct Hy as [Hy Hu]. unfold between, after, upto in Hy.
    rewrite filter_twice in Hy. apply filter_In in Hy. destruct Hy as [Hy Hc].
    apply andb_true_iff in Hc. destruct Hc as [Hc _]. specialize (Hn y Hy). rewrite Hu, Hc in Hn.
    unfold tells in Hn. now destruct (says y k).
  - apply andb_true_iff in He. destruct He as [He Hhi]. apply andb_true_iff in He. destruct He as [Hu Ht].
    apply N.leb_le in Hhi. assert (Hel : In e l) by (subst l; apply in_elt).
    assert (Hse : seen s e = false) by (unfold unseen in Hu; now apply negb_true_iff).
    assert (Hlo : lo u < at_ e).
    { destruct (N.lt_ge_cases (lo u) (at_ e)) as [|G]; auto. destruct (Hb e Hel) as [H _].
      rewrite H in Hse; auto. discriminate. }
    exists (at_ e - 1). split; [lia|]. rewrite (Hr k Hk). unfold source, upto. rewrite !run_told.
    rewrite (@told_alike (seen s) (fun x => at_ x <=? at_ e - 1)); auto.
    intros x Hx Hxk. rewrite E in Ho. destruct (ordered_around _ _ _ Ho) as [Oa Ob].
    assert (Hcase : In x a \/ x = e \/ In x b).
    { rewrite E in Hx. apply in_app_or in Hx. destruct Hx as [|[|]]; auto. }
    destruct Hcase as [Hc|[->|Hc]].
    + specialize (Ha x Hc). specialize (Oa x Hc). unfold tells in Ha.
      destruct (says x k); [|congruence]. replace (at_ x <=? hi u) with true in Ha by (symmetry; apply N.leb_le; lia).
      unfold unseen in Ha. destruct (seen s x) eqn:Ex; [|discriminate]. symmetry. apply N.leb_le.
      assert (at_ x <> at_ e); [|lia]. intro Heq. rewrite (Hp x e Hx Hel Heq) in Ex. congruence.
    + rewrite Hse. symmetry. apply N.leb_gt. lia.
    + rewrite E in Hl. apply locked_rest in Hl. destruct Hl as [Hl _]. rewrite (Hl); auto.
      * symmetry. apply N.leb_gt. specialize (Ob x Hc). lia.
      * unfold tells in Ht. destruct (says e k); congruence.
Qed.
End Exact.
