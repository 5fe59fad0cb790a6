------------------------------ MODULE Delivery ------------------------------
(***************************************************************************)
(* Delivery of one change log to many sinks by several runners.            *)
(*                                                                         *)
(* A runner leases a sink (fencing token), takes it over (the sink's token *)
(* rises, the cursor is read), and then sends orders: move from `expected` *)
(* to `upto`. The sink's commit is one atomic step that checks token and   *)
(* cursor and writes data and cursor. Orders live on in the network after  *)
(* their runner crashed, was reset or lost the lease; they may run at any  *)
(* later time, and more than once. Runner actions bear the names of the    *)
(* functions of src/truecut/core/delivery.py; the rest is the environment. *)
(***************************************************************************)
EXTENDS History

CONSTANTS
  Runners,
  Histories,    \* the source's possible histories, a sequence (Init picks one; SrcCommit reveals it)
  MaxFaults,    \* how many leases may run out, runners crash, answers get lost, stores vanish, in total
  MaxExpire,    \* `oldest` may rise to this
  Junk,         \* whether a sink holds left-over rows before its first seed
  StoreLoss,    \* whether the control store may be deleted
  SendEmpty     \* whether a window that holds nothing for a sink may be sent all the same

VARIABLES
  which,    \* the source's history, whole: an index of Histories
  head,     \* how much of it is committed
  oldest,   \* windows may start here or later
  sink,     \* [Sinks -> cursor, token, data]: durable, one row with the data
  lease,    \* [Sinks -> holder, token]: the control store
  net,      \* orders and their answers
  run,      \* [Runners -> oldest, head as observed, and what is known of each sink]
  faults    \* how many faults have happened

vars == <<which, head, oldest, sink, lease, net, run, faults>>

hist == Histories[which]

Unseeded == -1
Nobody == "nobody"
NoWave == [kind |-> "none", upto |-> Unseeded]
Unowned == [phase |-> "unowned", token |-> 0, epoch |-> 0, cursor |-> Unseeded, position |-> Unseeded,
            copy |-> "none", wave |-> NoWave]
Fresh == [oldest |-> 0, head |-> 0, sinks |-> [s \in Sinks |-> Unowned]]

Leftover == IF Mode = "append" THEN <<>>
            ELSE IF Junk THEN [NoBag EXCEPT ![<<CHOOSE k \in Keys : TRUE, 1>>] = 1] ELSE NoBag

Init ==
  /\ which \in DOMAIN Histories
  /\ head = 0 /\ oldest = 0 /\ faults = 0 /\ net = {}
  /\ sink = [s \in Sinks |-> [cursor |-> Unseeded, token |-> 0, data |-> Leftover]]
  /\ lease = [s \in Sinks |-> [holder |-> Nobody, token |-> 0]]
  /\ run = [r \in Runners |-> Fresh]

St(r, s) == run[r].sinks[s]
Set(r, s, state) == run' = [run EXCEPT ![r].sinks[s] = state]
Fault == faults < MaxFaults /\ faults' = faults + 1
source == <<which, head, oldest>>

-----------------------------------------------------------------------------
(* The environment. *)

SrcCommit ==
  /\ head < Len(hist) /\ head' = head + 1
  /\ UNCHANGED <<which, oldest, sink, lease, net, run, faults>>

Expire ==
  /\ oldest < head /\ oldest < MaxExpire /\ oldest' = oldest + 1
  /\ UNCHANGED <<which, head, sink, lease, net, run, faults>>

(* A lease runs out. Its holder may be paused and not know for as long as it likes. *)
LeaseOut(s) ==
  /\ lease[s].holder # Nobody /\ Fault
  /\ lease' = [lease EXCEPT ![s].holder = Nobody]
  /\ UNCHANGED <<source, sink, net, run>>

(* The control store is deleted: nobody holds anything, tokens start again. *)
StoreLost ==
  /\ StoreLoss /\ \E s \in Sinks : lease[s].token > 0
  /\ Fault
  /\ lease' = [s \in Sinks |-> [holder |-> Nobody, token |-> 0]]
  /\ UNCHANGED <<source, sink, net, run>>

(* The process dies: its memory and all answers to it are lost, its orders are not. *)
Orphan(o) == IF o.kind = "takeover" THEN [o EXCEPT !.run = Nobody, !.epoch = 0, !.answered = FALSE, !.cursor = Unseeded]
             ELSE [o EXCEPT !.run = Nobody, !.epoch = 0, !.answered = FALSE]
Crash(r) ==
  /\ run[r] # Fresh /\ Fault
  /\ run' = [run EXCEPT ![r] = Fresh]
  /\ lease' = [s \in Sinks |-> IF lease[s].holder = r THEN [lease[s] EXCEPT !.holder = Nobody] ELSE lease[s]]
  /\ net' = {IF o.run = r THEN Orphan(o) ELSE o : o \in net}
  /\ UNCHANGED <<source, sink>>

(* Recovery at the sink: the fence rises to the order's token, the cursor is told. *)
TakesOver(o) ==
  /\ o.kind = "takeover" /\ ~o.answered
  /\ o.token >= sink[o.sink].token \/ "takeover_unfenced" \in Bugs
  /\ sink' = [sink EXCEPT ![o.sink].token = o.token]
  /\ \/ net' = (net \ {o}) \cup {[o EXCEPT !.answered = TRUE, !.cursor = sink[o.sink].cursor]}
     \/ net' = net /\ sink' # sink   \* it runs again, and only the second answer arrives
  /\ UNCHANGED <<source, lease, run, faults>>

Passes(o) == o.token = sink[o.sink].token \/ "no_fence" \in Bugs
Expected(o) == sink[o.sink].cursor = o.expected \/ "expected_unchecked" \in Bugs
(* A seed may end where the sink stands: then it replaces what is there. *)
Already(o) == sink[o.sink].cursor = o.upto /\ o.expected # o.upto /\ "expected_unchecked" \notin Bugs

DataAfter(o) ==
  CASE o.kind = "changes" -> Written(hist, o.sink, sink[o.sink].data, o.after, o.upto)
    [] o.kind = "replace" -> Seeded(hist, o.sink, sink[o.sink].data, o.upto)
    [] OTHER -> sink[o.sink].data

(* An order runs: in one step all of it, or nothing. *)
Commits(o) ==
  /\ o.kind # "takeover" /\ Passes(o)
  /\ \/ /\ Already(o) /\ ~o.answered
        /\ UNCHANGED sink
        /\ net' = (net \ {o}) \cup {[o EXCEPT !.answered = TRUE]}
     \/ /\ ~Already(o) /\ Expected(o)
        /\ sink' = [sink EXCEPT ![o.sink].cursor = o.upto, ![o.sink].data = DataAfter(o)]
        /\ net' = (net \ {o}) \cup {[o EXCEPT !.answered = TRUE]}
     \/ /\ "cursor_apart_from_data" \in Bugs /\ ~Already(o) /\ Expected(o)
        /\ sink' = [sink EXCEPT ![o.sink].data = DataAfter(o)]   \* killed before the cursor is written
        /\ UNCHANGED net
  /\ UNCHANGED <<source, lease, run, faults>>

SinkTakeover == \E o \in net : TakesOver(o)
SinkCommit == \E o \in net : Commits(o)

-----------------------------------------------------------------------------
(* A runner's knowledge. *)

Reset(k, phase, token) == [Unowned EXCEPT !.phase = phase, !.token = token, !.epoch = k.epoch + 1]

(* Nothing is read across a gap: a mirror is seeded anew, an append table is held. *)
Gap(k, old) ==
  IF /\ k.phase = "idle" /\ k.copy = "streaming" /\ k.position < old /\ "read_across_gap" \notin Bugs
  THEN [k EXCEPT !.copy = IF Mode = "append" THEN "held" ELSE "unseeded"]
  ELSE k

AtCursor(r, k, cursor) ==
  Gap([k EXCEPT !.phase = "idle", !.cursor = cursor, !.position = cursor, !.wave = NoWave,
                !.copy = IF cursor = Unseeded THEN "unseeded" ELSE "streaming"],
      run[r].oldest)

Look(r) ==
  /\ run' = [run EXCEPT ![r] = [oldest |-> oldest, head |-> head,
                                sinks |-> [s \in Sinks |-> Gap(St(r, s), oldest)]]]
  /\ UNCHANGED <<source, sink, lease, net, faults>>

(* A place turns out to be unreadable although it is within what was observed. At one place once in an
   epoch: the seeds that follow would bear the same name here (the code numbers them). *)
LostHistory(r, s) ==
  /\ ~\E o \in net : /\ o.run = r /\ o.sink = s /\ o.kind = "replace" /\ o.epoch = St(r, s).epoch
                     /\ o.expected = St(r, s).cursor /\ o.upto = St(r, s).cursor
  /\ St(r, s).phase = "idle" /\ St(r, s).copy = "streaming" /\ Fault
  /\ Set(r, s, [St(r, s) EXCEPT !.copy = IF Mode = "append" THEN "held" ELSE "unseeded"])
  /\ UNCHANGED <<source, sink, lease, net>>

(* Looking while it owns nothing could change nothing but what is looked at again later. *)
Observe(r) ==
  /\ \E s \in Sinks : St(r, s).phase # "unowned"
  /\ <<run[r].oldest, run[r].head>> # <<oldest, head>>
  /\ Look(r)

-----------------------------------------------------------------------------
(* Leases and recovery. *)

AcquireWith(r, s, token) ==
  /\ lease' = [lease EXCEPT ![s] = [holder |-> r, token |-> token]]
  /\ Set(r, s, Reset(St(r, s), "acquired", token))
  /\ UNCHANGED <<source, sink, net, faults>>

Acquire(r, s) ==
  \/ lease[s].holder = Nobody /\ AcquireWith(r, s, lease[s].token + 1)
  \* The sink has seen a newer token than the store knows: ours must be above it.
  \/ /\ lease[s].holder = r /\ St(r, s).phase \in {"acquired", "recovering"}
     /\ St(r, s).token = lease[s].token /\ lease[s].token < sink[s].token
     /\ AcquireWith(r, s, sink[s].token + 1)

Lose(r, s) ==
  /\ St(r, s).phase # "unowned" /\ (lease[s].holder # r \/ lease[s].token # St(r, s).token)
  /\ Set(r, s, Reset(St(r, s), "unowned", 0))
  /\ UNCHANGED <<source, sink, lease, net, faults>>

TakeoverOf(r, s) == [kind |-> "takeover", run |-> r, sink |-> s, epoch |-> St(r, s).epoch,
                     token |-> St(r, s).token, answered |-> FALSE, cursor |-> Unseeded]

StartRecovery(r, s) ==
  /\ St(r, s).phase = "acquired"
  /\ Set(r, s, [St(r, s) EXCEPT !.phase = "recovering"])
  /\ net' = net \cup {TakeoverOf(r, s)}
  /\ UNCHANGED <<source, sink, lease, faults>>

Mine(r, s, o) == o.run = r /\ o.sink = s /\ (o.epoch = St(r, s).epoch \/ "no_epoch_check" \in Bugs)

Recovered(r, s) ==
  /\ St(r, s).phase = "recovering"
  /\ \E o \in net :
       /\ o.kind = "takeover" /\ o.answered /\ Mine(r, s, o)
       /\ Set(r, s, AtCursor(r, St(r, s), o.cursor))
       /\ net' = net \ {o}
  /\ UNCHANGED <<source, sink, lease, faults>>

(* Whether the runner's own message can still be answered well. *)
Hopeless(o) == IF o.kind = "takeover" THEN o.token < sink[o.sink].token
               ELSE ~Passes(o) \/ ~(Expected(o) \/ Already(o))
(* Within an epoch these name the wave; the code numbers its waves. *)
OfWave(k, o) == o.kind = k.wave.kind /\ o.upto = k.wave.upto /\ o.expected = k.cursor
Asked(r, s, o) == LET k == St(r, s) IN
  /\ o.run = r /\ o.sink = s /\ o.epoch = k.epoch
  /\ IF k.phase = "recovering" THEN o.kind = "takeover"
     ELSE IF o.kind = "takeover" THEN FALSE ELSE OfWave(k, o)
Doomed(r, s) == /\ \E o \in net : Asked(r, s, o)
                /\ \A o \in net : Asked(r, s, o) => ~o.answered /\ Hopeless(o)

(* A refusal for ever is answered by a higher token (Acquire) or by giving up (Lose). *)
RecoveryFail(r, s) ==
  /\ St(r, s).phase = "recovering" /\ Fault
  /\ Set(r, s, Reset(St(r, s), "acquired", St(r, s).token))
  /\ UNCHANGED <<source, sink, lease, net>>

-----------------------------------------------------------------------------
(* Waves, one sink's part of them. What could not be read never becomes an order. *)

Order(r, s, kind, after, upto) ==
  [kind |-> kind, run |-> r, sink |-> s, epoch |-> St(r, s).epoch, token |-> St(r, s).token,
   expected |-> St(r, s).cursor, after |-> after, upto |-> upto, answered |-> FALSE]

Begin(r, s, kind, upto) ==
  Set(r, s, [St(r, s) EXCEPT !.phase = "applying", !.wave = [kind |-> kind, upto |-> upto],
                             !.position = IF "position_before_commit" \in Bugs /\ kind = "changes" THEN upto ELSE @])

MayBegin(r, s) == St(r, s).phase = "idle" \/ ("wave_while_applying" \in Bugs /\ St(r, s).phase = "applying")

(* The window (position, upto] may end before the head. *)
Begins(r, s, upto) ==
  LET k == St(r, s)
      after == IF "read_across_gap" \in Bugs THEN Max(k.position, oldest) ELSE k.position
      sent == {Order(r, s, "changes", after, upto)}
  IN /\ MayBegin(r, s) /\ k.copy = "streaming" /\ k.position < upto /\ upto <= run[r].head
     /\ Begin(r, s, "changes", upto)
     /\ IF after < oldest THEN net' = net
        ELSE IF Touches(hist, s, after, upto) THEN net' = net \cup sent
        ELSE net' = net \/ (SendEmpty /\ net' = net \cup sent)
     /\ UNCHANGED <<source, sink, lease, faults>>

StartWave(r, s) == \E upto \in 1..Len(hist) : Begins(r, s, upto)

StartSeed(r, s) ==
  /\ St(r, s).phase = "idle" /\ St(r, s).copy = "unseeded" /\ run[r].head >= St(r, s).cursor
  /\ Begin(r, s, "replace", run[r].head)
  /\ net' = IF run[r].head < oldest THEN net
            ELSE net \cup {Order(r, s, "replace", run[r].head, run[r].head)}
  /\ UNCHANGED <<source, sink, lease, faults>>

PersistIdle(r, s) ==
  /\ St(r, s).phase = "idle" /\ St(r, s).copy = "streaming" /\ St(r, s).cursor < St(r, s).position
  /\ Begin(r, s, "persist", St(r, s).position)
  /\ net' = net \cup {Order(r, s, "persist", St(r, s).position, St(r, s).position)}
  /\ UNCHANGED <<source, sink, lease, faults>>

WaveCommit(r, s) ==
  /\ St(r, s).phase = "applying"
  /\ \E o \in net :
       /\ o.kind # "takeover" /\ o.answered /\ Mine(r, s, o)
       /\ OfWave(St(r, s), o) \/ "no_epoch_check" \in Bugs
       /\ Set(r, s, AtCursor(r, St(r, s), o.upto))
  /\ UNCHANGED <<source, sink, lease, net, faults>>

(* The answer is a refusal, an error, late or lost: the order may have committed, so all is forgotten
   and the cursor read again. *)
WaveFail(r, s) ==
  LET k == St(r, s) IN
  /\ k.phase = "applying"
  /\ IF Doomed(r, s) THEN UNCHANGED faults ELSE Fault
  /\ Set(r, s, IF "missing_reset" \in Bugs
               THEN [k EXCEPT !.phase = "idle", !.position = k.wave.upto, !.wave = NoWave, !.epoch = @ + 1]
               ELSE IF "no_recovery" \in Bugs
               THEN [k EXCEPT !.phase = "idle", !.position = k.cursor, !.wave = NoWave]
               ELSE Reset(k, "acquired", k.token))
  /\ UNCHANGED <<source, sink, lease, net>>

(* The window could not be read, so no order was sent: the sink is where it was. *)
WaveAbort(r, s) ==
  LET k == St(r, s) IN
  /\ k.phase = "applying" /\ ~\E o \in net : Asked(r, s, o)
  /\ (IF k.wave.kind = "replace" THEN k.wave.upto ELSE k.position) < oldest
  /\ Set(r, s, Gap([k EXCEPT !.phase = "idle", !.wave = NoWave], run[r].oldest))
  /\ UNCHANGED <<source, sink, lease, net, faults>>

(* Nothing in the window was for this sink: it moves on without a commit. *)
Advance(r, s) ==
  LET k == St(r, s) IN
  /\ k.phase = "applying" /\ k.wave.kind = "changes"
  /\ ~\E o \in net : Asked(r, s, o)
  /\ ~Touches(hist, s, k.position, k.wave.upto) \/ "advance_unread" \in Bugs
  /\ Set(r, s, Gap([k EXCEPT !.phase = "idle", !.position = k.wave.upto, !.wave = NoWave], run[r].oldest))
  /\ UNCHANGED <<source, sink, lease, net, faults>>

-----------------------------------------------------------------------------
Next ==
  \/ SrcCommit \/ Expire \/ StoreLost
  \/ \E s \in Sinks : LeaseOut(s)
  \/ SinkTakeover \/ SinkCommit
  \/ \E r \in Runners :
       \/ Observe(r) \/ Crash(r)
       \/ \E s \in Sinks :
            \/ Acquire(r, s) \/ Lose(r, s) \/ StartRecovery(r, s) \/ Recovered(r, s) \/ RecoveryFail(r, s)
            \/ StartWave(r, s) \/ StartSeed(r, s) \/ PersistIdle(r, s)
            \/ WaveCommit(r, s) \/ WaveFail(r, s) \/ WaveAbort(r, s) \/ Advance(r, s)
            \/ LostHistory(r, s)

Spec == Init /\ [][Next]_vars

(* Fairness: whoever can go on does. Faults never have to happen, and there are finitely many. *)
Executes == \E o \in net : o.run # Nobody /\ (TakesOver(o) \/ Commits(o))
FairSpec ==
  /\ Spec /\ WF_vars(SrcCommit) /\ WF_vars(Executes)
  /\ \A r \in Runners :
       /\ WF_vars(Observe(r))
       /\ \A s \in Sinks :
            /\ WF_vars(Acquire(r, s)) /\ WF_vars(Lose(r, s)) /\ WF_vars(StartRecovery(r, s))
            /\ WF_vars(Recovered(r, s))
            /\ WF_vars(StartWave(r, s)) /\ WF_vars(StartSeed(r, s))
            /\ WF_vars(WaveCommit(r, s)) /\ WF_vars(WaveFail(r, s) /\ faults' = faults)
            /\ WF_vars(WaveAbort(r, s)) /\ WF_vars(Advance(r, s))

-----------------------------------------------------------------------------
(* What must hold. *)

Current(s) == sink[s].cursor = head
Truth(s, i) == Share(hist, s, i)

TypeOK ==
  /\ oldest \in 0..head /\ head \in 0..Len(hist)
  /\ \A s \in Sinks : sink[s].cursor \in Unseeded..Len(hist) /\ lease[s].holder \in Runners \cup {Nobody}
  /\ \A r \in Runners, s \in Sinks :
       /\ St(r, s).phase \in {"unowned", "acquired", "recovering", "idle", "applying"}
       /\ St(r, s).copy \in {"none", "streaming", "unseeded", "held"}

NoDuplicate == \A s \in Sinks : sink[s].cursor # Unseeded => \A k \in Keys : sink[s].data[<<k, 1>>] + sink[s].data[<<k, 2>>] <= 1

PartitionCorrectness ==
  \A s \in Sinks : \A k \in Keys : \A v \in Vals :
    (sink[s].cursor # Unseeded /\ sink[s].data[<<k, v>>] > 0) => RowsAt(hist, sink[s].cursor)[k].route \in {s, "none"}

NoPhantomWhenCurrent == \A s \in Sinks : Current(s) => \A kv \in Keys \X Vals : sink[s].data[kv] <= Truth(s, head)[kv]
NoDataLossWhenCurrent == \A s \in Sinks : Current(s) => \A kv \in Keys \X Vals : sink[s].data[kv] >= Truth(s, head)[kv]
EventualConsistency == (\A s \in Sinks : Current(s)) => \A s \in Sinks : sink[s].data = Truth(s, head)

(* The content is the source's at exactly one position: the cursor. *)
TransactionNeverSplit == \A s \in Sinks : sink[s].cursor # Unseeded => sink[s].data = Truth(s, sink[s].cursor)

Knows(k) == k.phase \in {"idle", "applying"}

(* What a runner believes durable is durable; what it has read exists, and was nothing to this sink. *)
BufferPositionBound ==
  \A r \in Runners, s \in Sinks : LET k == St(r, s) IN
    Knows(k) => /\ k.cursor <= sink[s].cursor /\ k.cursor <= k.position /\ k.position <= head
                /\ sink[s].cursor <= head
                /\ k.copy = "streaming" => ~Touches(hist, s, k.cursor, k.position)

(* Only an applying sink has a wave; nobody applies before the fence was raised; when idle, nothing of
   this epoch can still change the sink. *)
FlushStateConsistency ==
  \A r \in Runners, s \in Sinks : LET k == St(r, s) IN
    /\ (k.phase = "applying") <=> (k.wave # NoWave)
    /\ Knows(k) => k.token > 0 /\ k.token <= sink[s].token
    /\ k.phase \notin {"idle", "applying"} => k.cursor = Unseeded /\ k.position = Unseeded
    /\ Cardinality({o \in net : /\ o.kind # "takeover" /\ o.run = r /\ o.sink = s /\ o.epoch = k.epoch
                                /\ ~o.answered /\ ~Hopeless(o)}) <= (IF k.phase = "applying" THEN 1 ELSE 0)

CursorMonotonicity == [][\A s \in Sinks : sink'[s].cursor >= sink[s].cursor]_vars
TokenMonotonicity == [][\A s \in Sinks : sink'[s].token >= sink[s].token]_vars

(* Whatever changes a sink's data or cursor is an order that bears the sink's token. *)
FencedWriteHasNoEffect ==
  [][\A s \in Sinks :
       (sink'[s].cursor # sink[s].cursor \/ sink'[s].data # sink[s].data) =>
         \E o \in net : /\ o.kind # "takeover" /\ o.sink = s /\ o.token = sink[s].token
                        /\ sink'[s].cursor \in {o.upto, sink[s].cursor}]_vars

EverySinkBecomesCurrent ==
  <>[](\A s \in Sinks : /\ sink[s].cursor # Unseeded /\ sink[s].data = Truth(s, Len(hist))
                        /\ \E r \in Runners : St(r, s).phase = "idle" /\ St(r, s).position = Len(hist))
=============================================================================
