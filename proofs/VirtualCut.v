(* The virtual cut: a copy that was read piece by piece, while the source changed, and repaired by the log,
   equals the source at a frontier. Replay equality, continuation, restriction. *)
Require Import List Bool NArith Lia.
Require Import Replay.
Import ListNotations.
Set Implicit Arguments.
Local Open Scope N_scope.

(* An entry of the log: where it counts (the place of its transaction's commit), who wrote it, what it tells. *)
Record entry (K V : Type) := Entry { at_ : N; xid : N; says : event K V }.

Section Cut.
Variables K V : Type.
Notation entry := (entry K V).
Notation state := (state K V).

Definition events (l : list entry) := map (@says K V) l.
Definition upto (p : N) (l : list entry) := filter (fun e => at_ e <=? p) l.
Definition after (p : N) (l : list entry) := filter (fun e => p <? at_ e) l.
Definition between (a b : N) (l : list entry) := after a (upto b l).

(* In order: no entry lies before one that precedes it. *)
Fixpoint ordered (l : list entry) : Prop :=
  match l with
  | [] => True
  | e :: t => (forall x, In x t -> at_ e <= at_ x) /\ ordered t
  end.

(* The source: a state before the log, and the log. *)
Definition source (s0 : state) (l : list entry) (p : N) : state := run s0 (events (upto p l)).
(* A virtual cut: on a scope, a state is the source's at a frontier. *)
Definition is_cut (s0 : state) (l : list entry) (scope : K -> Prop) (f : N) (st : state) : Prop :=
  forall k, scope k -> st k = source s0 l f k.

Lemma upto_app : forall p a b, upto p (a ++ b) = upto p a ++ upto p b.
Proof. intros. unfold upto. apply filter_app. Qed.

Lemma upto_split : forall l a b, ordered l -> a <= b -> upto b l = upto a l ++ between a b l.
Proof.
  induction l as [|e l IH]; intros a b Ho Hab; auto.
  destruct Ho as [He Ho]. specialize (IH a b Ho Hab).
  unfold between, upto, after in *. simpl.
  destruct (at_ e <=? a) eqn:Ea.
  - apply N.leb_le in Ea. replace (at_ e <=? b) with true by (symmetry; apply N.leb_le; lia). simpl.
    replace (a <? at_ e) with false by (symmetry; apply N.ltb_ge; lia). simpl. f_equal. exact IH.
  - apply N.leb_gt in Ea.
    assert (Z : filter (fun x => at_ x <=? a) l = []).
    { apply incl_l_nil. intros x Hx. apply filter_In in Hx. destruct Hx as [Hx Hl].
      apply N.leb_le in Hl. specialize (He x Hx). lia. }
    rewrite Z in *. simpl in *.
    destruct (at_ e <=? b) eqn:Eb; simpl; auto.
    replace (a <? at_ e) with true by (symmetry; apply N.ltb_lt; lia). f_equal. exact IH.
Qed.

Lemma source_step : forall s0 l a b k, ordered l -> a <= b ->
  source s0 l b k = match told k (events (between a b l)) with Some i => i | None => source s0 l a k end.
Proof.
  intros. unfold source. rewrite (@upto_split l a b) by auto.
  unfold events. now rewrite map_app, run_app, run_told.
Qed.

Lemma quiet : forall s0 l a c b k, ordered l -> a <= c -> c <= b ->
  told k (events (between a b l)) = None -> source s0 l c k = source s0 l b k.
Proof.
  intros s0 l a c b k Ho H1 H2 Q. rewrite (@source_step s0 l c b) by auto.
  replace (told k (events (between c b l))) with (@None (option V)); auto.
  symmetry. apply told_none. rewrite told_none in Q. intros e He. apply Q.
  unfold events in *. apply in_map_iff in He. destruct He as [x [Hx Hi]]. apply in_map_iff. exists x.
  split; auto. unfold between, after in *. apply filter_In in Hi. destruct Hi as [Hi Hc].
  apply filter_In. split; auto. apply N.ltb_lt in Hc. apply N.ltb_lt. lia.
Qed.

(* --- units -------------------------------------------------------------------------------------------- *)

(* A unit: the cells it owns, its bracket, and what was found of each; None is "nothing is there". *)
Record unit_ := Unit { owns : K -> bool; lo : N; hi : N; found : state }.

(* Faithfully read: each cell, found or not, was the source's somewhere between lo and hi. *)
Definition faithful (s0 : state) (l : list entry) (u : unit_) : Prop :=
  lo u <= hi u /\
  forall k, owns u k = true -> exists c, lo u <= c <= hi u /\ found u k = source s0 l c k.

(* The unit's rows, and the log after its lo, in order. *)
Definition replay (l : list entry) (u : unit_) (f : N) : state := run (found u) (events (between (lo u) f l)).

Fixpoint owner (us : list unit_) (k : K) : option unit_ :=
  match us with [] => None | u :: t => if owns u k then Some u else owner t k end.
Definition replay_all (l : list entry) (us : list unit_) (f : N) : state :=
  fun k => match owner us k with Some u => replay l u f k | None => None end.

Lemma owner_in : forall us k u, owner us k = Some u -> In u us /\ owns u k = true.
Proof.
  induction us as [|a us IH]; simpl; intros k u H; [discriminate|].
  destruct (owns a k) eqn:E; [inversion H; subst; auto|]. destruct (IH _ _ H); auto.
Qed.

(* One unit, replayed from its lo up to any frontier at or after its hi, is the source there, on what it owns.
   Premises: the log is in order and complete after lo (`ordered`, one list for the source and the replay); the
   unit was read faithfully; f >= hi. *)
Theorem unit_replays_to_source : forall s0 l u f k,
  ordered l -> faithful s0 l u -> owns u k = true -> hi u <= f -> replay l u f k = source s0 l f k.
Proof.
  intros s0 l u f k Ho [Hb Hv] Hk Hf. destruct (Hv k Hk) as [c [Hc Hr]].
  unfold replay. rewrite run_told, (@source_step s0 l (lo u) f) by (auto; lia).
  destruct (told k (events (between (lo u) f l))) eqn:E; auto.
  rewrite Hr, (@quiet s0 l (lo u) c f) by (auto; lia). symmetry. apply (@quiet s0 l (lo u)); auto; lia.
Qed.

(* A well-formed run is a virtual cut on what its units own.
   Premises: the log is in order and complete; each unit was read faithfully and ends at or before f; each
   cell of the scope has an owner. *)
Theorem run_is_cut : forall s0 l us f (scope : K -> Prop),
  ordered l -> (forall u, In u us -> faithful s0 l u /\ hi u <= f) ->
  (forall k, scope k -> owner us k <> None) -> is_cut s0 l scope f (replay_all l us f).
Proof.
  intros s0 l us f scope Ho Hu Hs k Hk. unfold replay_all. specialize (Hs k Hk).
  destruct (owner us k) as [u|] eqn:E; [|congruence].
  destruct (@owner_in _ _ _ E) as [Hi Hw]. destruct (Hu u Hi). now apply unit_replays_to_source.
Qed.

(* --- continuation --------------------------------------------------------------------------------------- *)

(* An event, as far as it tells of a scope. *)
Definition within (scope : K -> bool) (e : event K V) : event K V := fun k => if scope k then e k else None.

Lemma told_within : forall scope k l, scope k = true -> told k (map (within scope) l) = told k l.
Proof. induction l as [|e l IH]; simpl; intros; auto. rewrite IH by auto. unfold within. now rewrite H. Qed.

(* A cut at f, and the log of (f, f'] as far as it tells of the scope, are a cut at f'.
   Premises: the log is in order; f <= f'; the segment is exactly the log between the two. *)
Theorem continuation : forall s0 l (scope : K -> bool) f f' st,
  ordered l -> f <= f' -> is_cut s0 l (fun k => scope k = true) f st ->
  is_cut s0 l (fun k => scope k = true) f' (run st (map (within scope) (events (between f f' l)))).
Proof.
  intros s0 l scope f f' st Ho Hf Hc k Hk. rewrite run_told, told_within by auto.
  rewrite (@source_step s0 l f f') by auto. rewrite (Hc k Hk). reflexivity.
Qed.

(* Whoever stands between two frontiers, and goes on from there, ends as one that never stopped.
   Premises: the log is in order; a <= b <= c. *)
Theorem continuation_in_steps : forall l a b c (st : state),
  ordered l -> a <= b -> b <= c ->
  forall k, run (run st (events (between a b l))) (events (between b c l)) k = run st (events (between a c l)) k.
Proof.
  intros l a b c st Ho Hab Hbc k.
  assert (S : between a c l = between a b l ++ between b c l).
  { apply app_inv_head with (l := upto a l). rewrite <- upto_split by (auto; lia).
    rewrite app_assoc, <- upto_split by auto. now apply upto_split. }
  rewrite S. unfold events. now rewrite map_app, run_app.
Qed.

(* --- restriction ----------------------------------------------------------------------------------------- *)

(* A cut on a scope is one on each part of it; nothing is said of more.
   Premise: what is claimed lies within the scope. *)
Theorem restriction : forall s0 l (wide narrow : K -> Prop) f st,
  (forall k, narrow k -> wide k) -> is_cut s0 l wide f st -> is_cut s0 l narrow f st.
Proof. intros s0 l wide narrow f st H Hc k Hk. apply Hc. auto. Qed.

(* What a sink gets of a value: all of it, or nothing where the route leads elsewhere. *)
Definition routed (route : V -> bool) (i : option V) : option V :=
  match i with Some v => if route v then Some v else None | None => None end.
Definition routed_event (route : V -> bool) (e : event K V) : event K V :=
  fun k => match e k with Some i => Some (routed route i) | None => None end.

(* A routed sink that takes each event as its route leaves it (a row that goes elsewhere is gone) has the cut
   restricted to its route. Premises: cells are whole rows; the sink's rows were the source's of its route at
   f; it gets exactly the log of (f, f']. *)
Theorem routed_continuation : forall s0 l (scope : K -> Prop) route f f' st,
  ordered l -> f <= f' ->
  (forall k, scope k -> st k = routed route (source s0 l f k)) ->
  forall k, scope k ->
    run st (map (routed_event route) (events (between f f' l))) k = routed route (source s0 l f' k).
Proof.
  intros s0 l scope route f f' st Ho Hf Hc k Hk.
  assert (T : forall es, told k (map (routed_event route) es) =
                         match told k es with Some i => Some (routed route i) | None => None end).
  { induction es as [|e es IH]; simpl; auto. rewrite IH. destruct (told k es); auto. }
  rewrite run_told, T, (@source_step s0 l f f') by auto.
  destruct (told k (events (between f f' l))); auto.
Qed.
End Cut.
