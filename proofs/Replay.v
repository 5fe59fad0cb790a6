(* States, events and their replay: last told wins, cell by cell.

   A cell is whatever a value is kept for: a row by its key, or one column of it. An event tells something of
   some cells: `Some (Some v)` a value, `Some None` that nothing is there, `None` nothing at all (an unchanged
   value that the log leaves out). So a put, a delete, a changed key (gone there, here now), a TRUNCATE and a
   unit's rows are all events. What is not: a value that is copied from another cell, as by a changed key with
   a value that the log leaves out. A unit that meets one is read again (core/cut.py, C5). *)
Require Import List Bool.
Import ListNotations.
Set Implicit Arguments.

Section Replay.
Variables K V : Type.

Definition state := K -> option V.
Definition event := K -> option (option V).

Definition upd (s : state) (e : event) : state :=
  fun k => match e k with Some i => i | None => s k end.
Definition run (s : state) (l : list event) : state := fold_left upd l s.

(* What a list of events tells last of a cell. *)
Fixpoint told (k : K) (l : list event) : option (option V) :=
  match l with
  | [] => None
  | e :: t => match told k t with Some i => Some i | None => e k end
  end.

Lemma run_told : forall l s k,
  run s l k = match told k l with Some i => i | None => s k end.
Proof.
  induction l as [|e l IH]; intros s k; simpl; auto.
  unfold run in *. simpl. rewrite IH. destruct (told k l); auto.
Qed.

Lemma run_app : forall a b s, run s (a ++ b) = run (run s a) b.
Proof. intros. unfold run. now rewrite fold_left_app. Qed.

Lemma told_app : forall a b k,
  told k (a ++ b) = match told k b with Some i => Some i | None => told k a end.
Proof.
  induction a as [|e a IH]; intros b k; simpl.
  - now destruct (told k b).
  - rewrite IH. now destruct (told k b).
Qed.

Lemma told_none : forall k l, told k l = None <-> (forall e, In e l -> e k = None).
Proof.
  intros k l. induction l as [|e l IH]; simpl.
  - split; [intros _ e []|auto].
  - split.
    + intros H x [<-|Hx]; destruct (told k l); try discriminate; auto. now apply IH.
    + intros H. replace (told k l) with (@None (option V)); [auto|]. symmetry. apply IH. auto.
Qed.
End Replay.
