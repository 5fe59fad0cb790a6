(* The checker of certificates, to be run, and what its word is worth.

   A certificate holds units with their rows, the log from its start to the frontier, and the state that is
   claimed at the frontier. Keys and rows are byte strings, places and ids are binary numbers. `accepts` replays
   the evidence unit by unit, in a balanced tree of rows. *)
Require Import List Bool NArith String Lia FMapAVL FMapFacts OrderedTypeEx.
Require Import Replay VirtualCut Splice Frontier Ranges.
Import ListNotations.
Local Open Scope N_scope.

Module Tree := FMapAVL.Make String_as_OT.
Module TreeFacts := FMapFacts.Facts Tree.

Definition bytes := string.
Definition rows := list (bytes * bytes).
Definition tree := Tree.t bytes.

Record read_unit := ReadUnit
  { keys : range bytes; from : N; until : N; under : snapshot; found_rows : rows }.
(* No key: TRUNCATE. No row: deleted. *)
Record change := Change { place : N; writer : N; subject : option bytes; image : option bytes }.
Record certificate := Certificate
  { start : N;               (* where the log begins *)
    before : snapshot;       (* who lies before that *)
    frontier : N;
    units : list read_unit;
    log : list change;
    parents : list (N * N);  (* subtransactions, and whose they are *)
    claimed : rows }.

Fixpoint lookup (k : bytes) (rs : rows) : option bytes :=
  match rs with [] => None | (a, v) :: t => if String.eqb k a then Some v else lookup k t end.
Fixpoint top_of (ps : list (N * N)) (x : N) : N :=
  match ps with [] => x | (sub, parent) :: t => if N.eqb x sub then parent else top_of t x end.
Definition same_row (a b : option bytes) : bool :=
  match a, b with Some a, Some b => String.eqb a b | None, None => true | _, _ => false end.

Definition told_by (c : change) : event bytes bytes := fun k =>
  match subject c with None => Some None | Some a => if String.eqb k a then Some (image c) else None end.
Definition entry_of (c : change) : entry bytes bytes := Entry (place c) (writer c) (told_by c).

Section Check.
Variable ltb : bytes -> bytes -> bool.   (* the order of keys at the source *)

Definition is_in (u : read_unit) (k : bytes) : bool := inside ltb (keys u) k.
Definition unit_of (u : read_unit) : unit_ bytes bytes :=
  Unit (is_in u) (from u) (until u) (fun k => lookup k (found_rows u)).

Definition units_ok (c : certificate) : bool :=
  whole String.eqb (map keys (units c)) && ascending ltb (map keys (units c)).

Fixpoint rising (rs : rows) : bool :=
  match rs with (a, _) :: ((b, _) :: _) as t => ltb a b && rising t | _ => true end.
Definition rows_ok (u : read_unit) : bool :=
  rising (found_rows u) && forallb (fun r => is_in u (fst r)) (found_rows u).

Fixpoint in_order (l : list change) : bool :=
  match l with a :: (b :: _) as t => (place a <=? place b) && in_order t | _ => true end.
Definition log_ok (c : certificate) : bool :=
  in_order (log c) && forallb (fun e => (start c <? place e) && (place e <=? frontier c)) (log c).

Definition sees_change (c : certificate) (u : read_unit) (e : change) : bool :=
  sees (under u) (top_of (parents c) (writer e)).
Definition bracket_ok (c : certificate) (u : read_unit) : bool :=
  (start c <=? from u) && (from u <=? until u) && (until u <=? frontier c) &&
  includes (under u) (before c) &&
  forallb (fun e => if sees_change c u e then place e <=? until u else from u <? place e) (log c).

(* What follows the unit's rows. *)
Definition following (c : certificate) (u : read_unit) : list change :=
  filter (fun e => (from u <? place e) && negb (sees_change c u e)) (log c).
Definition tree_of (rs : rows) : tree := fold_right (fun r t => Tree.add (fst r) (snd r) t) (Tree.empty _) rs.
Definition changed (t : tree) (e : change) : tree :=
  match subject e, image e with
  | None, _ => Tree.empty _
  | Some k, Some v => Tree.add k v t
  | Some k, None => Tree.remove k t
  end.
Definition keys_of (l : list change) : list bytes :=
  flat_map (fun e => match subject e with Some k => [k] | None => [] end) l.
Definition mentioned (c : certificate) (u : read_unit) : list bytes :=
  map fst (found_rows u) ++ keys_of (log c) ++ map fst (claimed c).
Definition state_ok (claims : tree) (c : certificate) (u : read_unit) : bool :=
  let replayed := fold_left changed (following c u) (tree_of (found_rows u)) in
  forallb (fun k => negb (is_in u k) || same_row (Tree.find k claims) (Tree.find k replayed)) (mentioned c u).

Definition accepts (c : certificate) : bool :=
  let claims := tree_of (claimed c) in
  units_ok c && log_ok c && rising (claimed c) &&
  forallb (fun u => rows_ok u && bracket_ok c u && state_ok claims c u) (units c).

(* --- what it is worth --------------------------------------------------------------------------------------- *)

Notation whole_log c past future := (past ++ map entry_of (log c) ++ future).

(* Faithful observation: what no checker can see in the files. *)
Record observed (c : certificate) (s0 : state bytes bytes) (past future : list (entry bytes bytes)) : Prop := {
  (* the log is the source's, whole, from start to frontier: what is not in it lies before or after; and
     the slot knows who lies before *)
  past_is_before : forall e, In e past ->
    at_ e <= start c /\ sees (before c) (top_of (parents c) (xid e)) = true;
  future_is_after : forall e, In e future -> frontier c < at_ e;
  (* no snapshot saw what was committed after the frontier *)
  future_unseen : forall e u, In e future -> In u (units c) -> seen (top_of (parents c)) (under u) e = false;
  (* each unit's rows are all that its snapshot sees in its range *)
  units_read : forall u, In u (units c) ->
    read_under (top_of (parents c)) (under u) s0 (whole_log c past future) (unit_of u);
  (* rows are locked until their transaction is over *)
  rows_locked : forall u k, In u (units c) ->
    locked (top_of (parents c)) (under u) k (whole_log c past future) }.

Lemma lookup_missing : forall rs k, ~ In k (map fst rs) -> lookup k rs = None.
Proof.
  induction rs as [|[a v] rs IH]; simpl; intros k H; auto.
  destruct (String.eqb k a) eqn:E; [apply String.eqb_eq in E; subst; tauto|]. apply IH. tauto.
Qed.

Lemma find_tree_of : forall rs k, Tree.find k (tree_of rs) = lookup k rs.
Proof.
  induction rs as [|[a v] rs IH]; intro k; simpl; [apply TreeFacts.empty_o|].
  rewrite TreeFacts.add_o, IH. destruct (Tree.E.eq_dec a k) as [E|E], (String.eqb k a) eqn:B; auto.
  - apply String.eqb_neq in B. congruence.
  - apply String.eqb_eq in B. congruence.
Qed.

Lemma find_changed : forall t e k,
  Tree.find k (changed t e) = match told_by e k with Some i => i | None => Tree.find k t end.
Proof.
  intros t e k. unfold changed, told_by. destruct (subject e) as [a|]; [|apply TreeFacts.empty_o].
  destruct (image e); rewrite ?TreeFacts.add_o, ?TreeFacts.remove_o;
  destruct (Tree.E.eq_dec a k) as [E|E], (String.eqb k a) eqn:B; auto.
  all: try (apply String.eqb_neq in B; congruence); apply String.eqb_eq in B; congruence.
Qed.

(* What the list of changes makes of a key. *)
Definition value_at (es : list change) (u : read_unit) (k : bytes) : option bytes :=
  fold_left (fun v e => match told_by e k with Some i => i | None => v end) es (lookup k (found_rows u)).

Lemma find_replayed : forall es t k, Tree.find k (fold_left changed es t) =
  fold_left (fun v e => match told_by e k with Some i => i | None => v end) es (Tree.find k t).
Proof. induction es as [|e es IH]; intros t k; simpl; auto. now rewrite IH, find_changed. Qed.

Lemma value_is_run : forall es s k,
  fold_left (fun v e => match told_by e k with Some i => i | None => v end) es (s k)
  = run s (events (map entry_of es)) k.
Proof.
  induction es as [|e es IH]; intros s k; auto. simpl.
  replace (match told_by e k with Some i => i | None => s k end) with (upd s (told_by e) k) by reflexivity.
  rewrite IH. reflexivity.
Qed.

Lemma untold_is_absent : forall es k, ~ In k (keys_of es) ->
  fold_left (fun v e => match told_by e k with Some i => i | None => v end) es None = None.
Proof.
  induction es as [|e es IH]; intros k H; auto. simpl in *.
  replace (match told_by e k with Some i => i | None => None end) with (@None bytes).
  - apply IH. intro Hi. apply H. apply in_or_app. now right.
  - unfold told_by. destruct (subject e) as [a|]; auto. destruct (String.eqb k a) eqn:E; auto.
    apply String.eqb_eq in E. subst. exfalso. apply H. simpl. now left.
Qed.

Lemma keys_of_filter : forall p es k, In k (keys_of (filter p es)) -> In k (keys_of es).
Proof.
  intros p es k H. unfold keys_of in *. apply in_flat_map in H. destruct H as [e [He Hk]].
  apply filter_In in He. apply in_flat_map. exists e. tauto.
Qed.

Lemma claimed_is_value : forall c u k, state_ok (tree_of (claimed c)) c u = true -> is_in u k = true ->
  lookup k (claimed c) = value_at (following c u) u k.
Proof.
  intros c u k H Hi. unfold state_ok in H. rewrite forallb_forall in H.
  destruct (in_dec String.string_dec k (mentioned c u)) as [Hm|Hm].
  - specialize (H k Hm). rewrite Hi, find_replayed, !find_tree_of in H. simpl in H.
    fold (value_at (following c u) u k) in H.
    destruct (lookup k (claimed c)), (value_at (following c u) u k); simpl in H; try discriminate; auto.
    apply String.eqb_eq in H. now subst.
  - unfold mentioned in Hm. rewrite !in_app_iff in Hm. rewrite lookup_missing by tauto.
    unfold value_at. rewrite (lookup_missing (found_rows u)) by tauto.
    symmetry. apply untold_is_absent. intro Hk. apply keys_of_filter in Hk. tauto.
Qed.

Lemma filter_map : forall A B (f : A -> B) p l, filter p (map f l) = map f (filter (fun x => p (f x)) l).
Proof. induction l as [|a l IH]; simpl; auto. destruct (p (f a)); simpl; now rewrite IH. Qed.

Lemma filter_none : forall A (p : A -> bool) l, (forall x, In x l -> p x = false) -> filter p l = [].
Proof.
  induction l as [|a l IH]; simpl; intro H; auto. rewrite H by auto. apply IH. auto.
Qed.

(* An accepted certificate, of a source that was faithfully observed, claims the source's state at the frontier,
   of every key. Premises: `observed`. What acceptance does not say: that a sink holds it. *)
Theorem accepted_is_cut : forall c s0 past future,
  accepts c = true -> observed c s0 past future ->
  is_cut s0 (whole_log c past future) (fun _ => True) (frontier c) (fun k => lookup k (claimed c)).
Proof.
  intros c s0 past future H O k _. unfold accepts in H. rewrite !andb_true_iff in H.
  destruct H as [[[Hu Hl] _] Hs]. unfold units_ok in Hu. rewrite andb_true_iff in Hu. destruct Hu as [Hw _].
  destruct (@every_key_has_a_unit bytes String.eqb ltb (fun a b => proj1 (String.eqb_eq a b)) _ k Hw)
    as [r [Hr Hin]].
  apply in_map_iff in Hr. destruct Hr as [u [<- Huu]].
  rewrite forallb_forall in Hs. specialize (Hs u Huu). rewrite !andb_true_iff in Hs.
  destruct Hs as [[_ Hb] Hst]. unfold bracket_ok in Hb. rewrite !andb_true_iff in Hb.
  destruct Hb as [[[[Hb1 Hb2] Hb3] Hinc] Hbr]. apply N.leb_le in Hb1, Hb2, Hb3.
  rewrite forallb_forall in Hbr. unfold log_ok in Hl. rewrite andb_true_iff in Hl. destruct Hl as [_ Hl].
  rewrite forallb_forall in Hl. rewrite (claimed_is_value c u k Hst Hin).
  set (top := top_of (parents c)). set (l := whole_log c past future).
  assert (B : bracketed top (under u) l (unit_of u)).
  { intros e He. unfold l in He. rewrite !in_app_iff in He. simpl. destruct He as [He|[He|He]].
    - destruct (past_is_before _ _ _ _ O e He) as [P1 P2]. split; [|lia].
      intros _. eapply includes_is_sound; eauto.
    - apply in_map_iff in He. destruct He as [x [<- Hx]]. specialize (Hbr x Hx).
      unfold seen, sees_change in *. simpl. fold top in Hbr.
      destruct (sees (under u) (top (writer x))).
      + apply N.leb_le in Hbr. auto.
      + apply N.ltb_lt in Hbr. split; [lia|discriminate].
    - pose proof (future_is_after _ _ _ _ O e He). pose proof (future_unseen _ _ _ _ O e u He Huu) as F.
      fold top in F. rewrite F. split; [lia|discriminate]. }
  rewrite <- (@splice_is_exact _ _ top (under u) s0 l (unit_of u) (frontier c) k);
    [|apply (units_read _ _ _ _ O u Huu)|apply (rows_locked _ _ _ _ O u k Huu)|exact B|exact Hin|exact Hb3].
  unfold value_at, spliced. simpl.
  change (lookup k (found_rows u)) with ((fun a => lookup a (found_rows u)) k). rewrite value_is_run.
  f_equal. f_equal. unfold l, between, after, upto. rewrite !filter_app.
  rewrite (filter_none _ (fun e => at_ e <=? frontier c) future), app_nil_r.
  2:{ intros e He. apply N.leb_gt. apply (future_is_after _ _ _ _ O e He). }
  rewrite (filter_twice (fun e => from u <? at_ e) (fun e => at_ e <=? frontier c) past).
  rewrite (filter_none _ _ past).
  2:{ intros e He. destruct (past_is_before _ _ _ _ O e He) as [P1 _].
      replace (from u <? at_ e) with false; [apply andb_false_r|]. symmetry. apply N.ltb_ge. lia. }
  simpl. rewrite !filter_twice, filter_map. f_equal. unfold following. apply filter_ext_in.
  intros e He. specialize (Hl e He). rewrite andb_true_iff in Hl. destruct Hl as [_ Hl]. simpl.
  rewrite Hl. reflexivity.
Qed.

(* Where every change counts at its transaction's commit, that state is also one that whole transactions left.
   Premises: `observed`; the place of a change is that of its transaction's commit. *)
Theorem accepted_is_transactional : forall c s0 past future commit,
  accepts c = true -> observed c s0 past future ->
  (forall e, In e (whole_log c past future) -> at_ e = commit (top_of (parents c) (xid e))) ->
  forall k, lookup k (claimed c) =
    run s0 (events (of_transactions (top_of (parents c))
      (begun (top_of (parents c)) (whole_log c past future) (frontier c)) (whole_log c past future))) k.
Proof.
  intros c s0 past future commit H O Hc k.
  transitivity (source s0 (whole_log c past future) (frontier c) k).
  - apply (accepted_is_cut c s0 past future H O k I).
  - now rewrite (closed_cut_is_transactional s0 (@commit_places_are_closed _ _ _ _ commit (frontier c) Hc)).
Qed.
End Check.
