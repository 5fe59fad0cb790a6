--------------------------- MODULE DeliveryTrace ---------------------------
(***************************************************************************)
(* Whether Delivery allows what a real run did.                            *)
(*                                                                         *)
(* A case is one sink's life: for each runner (process) the lines of its   *)
(* trace that concern the sink, in order. `n` is a line's place among all   *)
(* of the case, by the clock of the machine they ran on; 0: not known, and  *)
(* TLC interleaves the runners as it likes. The environment (takeovers and  *)
(* commits at the sink, of any order ever sent) happens in between: a case  *)
(* is accepted when some behaviour of the spec says all of its lines. An    *)
(* order is the spec's, made from what the runner knows, and has to be the  *)
(* line's: token, tables, expected versions, what it leaves. Rows are not   *)
(* in a trace, so the history is blank and any window may carry something   *)
(* or nothing. Leases are not either: the sink's fence decides; nor are a   *)
(* table's settings: whether it is held or seeded anew is the line's word,  *)
(* but that it streams, and from where, is the spec's.                      *)
(***************************************************************************)
EXTENDS Delivery, TLC

CONSTANTS Cases, Last   \* the cases, and the highest position in them

VARIABLES case, at, paused   \* at: [Runners -> lines said]; paused: [Runners -> tables]

(* What replaces a constant is evaluated at every use; what it names is evaluated once. *)
BlankOnce == [n \in 1..Last |-> [rows |-> Nothing, ev |-> [s \in Sinks |-> [t \in Tables |-> <<>>]],
                                 share |-> [s \in Sinks |-> [t \in Tables |-> NoBag(t)]]]]
Blank == BlankOnce
Blanks == <<Blank>>
NoKeysOnce == [k \in Keys |-> "none"]
NoKeys == NoKeysOnce
NoRunner == 0
Costless == UNCHANGED faults
TheSink == CHOOSE s \in Sinks : TRUE
Lines(r) == Cases[case].runners[r]
K(r) == St(r, TheSink)
Become(r, k) == Set(r, TheSink, k)

(* Tables that are held where a mirror would be seeded, as some line says. *)
HeldAtGap(t, c) == IF t \in Cases[case].gaps THEN ToHold(c, "gap") ELSE ToSeed(c)

TraceInit == /\ Init /\ case \in DOMAIN Cases /\ at = [r \in Runners |-> 0] /\ paused = [r \in Runners |-> {}]

Quiet == UNCHANGED <<source, sink, lease, net, wishes, faults>>

(* A line's copies beside the spec's. *)
Known(l, t) == [status |-> l.copies[t].status, at |-> l.copies[t].at, hold |-> l.copies[t].hold,
                resumed |-> l.copies[t].resumed, durable |-> l.copies[t].durable]
Agrees(l, t, c) == /\ l.copies[t].durable = c.durable /\ l.copies[t].resumed = c.resumed
                   /\ l.copies[t].status = "streaming" => c.status = "streaming" /\ c.at = l.copies[t].at
Said(l, k) == [k EXCEPT !.copies = [t \in Tables |-> Known(l, t)]]
Says(r, l, k, named) ==   \* k: what the spec says; of the tables that are not named nothing changes
  /\ \A t \in Tables : /\ l.copies[t].busy = InWave(k, t)
                       /\ IF t \in named THEN Agrees(l, t, k.copies[t]) ELSE Known(l, t) = k.copies[t]
  /\ Become(r, Said(l, k))

(* Positions are ranks: of which generation each is, and which source has it, the case says. *)
TraceGenOf(p) == Cases[case].gens[p + 1]
TraceSrcOf(p) == Cases[case].srcs[p + 1]
SaysObserve(r, l) ==
  /\ l.head >= run[r].head /\ l.oldest >= run[r].oldest
  /\ head' = Max(head, l.head) /\ oldest' = Max(oldest, l.oldest)
  /\ run' = [run EXCEPT ![r] = [src |-> l.src, oldest |-> l.oldest, head |-> l.head,
                                sinks |-> [s \in Sinks |-> Gaps(St(r, s), l)]]]
  /\ UNCHANGED <<which, numbered, sink, lease, net, wishes, faults>>

SaysAcquire(r, l) == l.token > 0 /\ Become(r, Reset(K(r), "acquired", l.token)) /\ Quiet
SaysLose(r) == K(r).phase # "unowned" /\ Become(r, Reset(K(r), "unowned", 0)) /\ Quiet
SaysStartRecovery(r, l) == K(r).token = l.token /\ StartRecovery(r, TheSink)

SaysRecovered(r, l) ==
  /\ K(r).phase = "recovering"
  /\ \E o \in net : /\ o.kind = "takeover" /\ o.answered /\ Mine(r, TheSink, o)
                    /\ Says(r, l, Ready(r, TheSink, o.told), Tables)
                    /\ net' = net \ {o}
  /\ UNCHANGED <<source, sink, lease, wishes, faults>>

SaysFail(r, phase) == K(r).phase = phase /\ Become(r, Reset(K(r), "acquired", K(r).token)) /\ Quiet

(* The order is what the spec makes of what the runner knows, and what the line says. *)
Sends(r, l, kind, after, upto, leaves) ==
  /\ K(r).phase = "ready" /\ l.token = K(r).token /\ DOMAIN leaves # {}
  /\ \A t \in DOMAIN leaves : ~InWave(K(r), t) /\ l.tables[t] = K(r).copies[t].durable
  /\ LET sent == net \cup {Order(r, TheSink, kind, after, upto, leaves)}
     IN CASE l.sent = "yes" -> net' = sent [] l.sent = "no" -> net' = net [] OTHER -> net' \in {net, sent}
  /\ UNCHANGED <<source, sink, lease, wishes, faults>>

(* `ends`: the window's end where an answer tells it. Otherwise one of those that a copy shows later
   (`may`): an end that nobody ever sees explains nothing. *)
SaysStartWave(r, l) ==
  LET k == K(r)
      carried == {t \in Tables \ paused[r] : k.copies[t].status = "streaming" /\ ~InWave(k, t)}
      sound == {t \in carried \ l.apart : k.copies[t].at = l.after}
      tables == DOMAIN l.tables
  IN /\ tables = sound \/ \E t \in carried \cap l.apart : k.copies[t].at = l.after /\ tables = {t}
     /\ k.waves["changes"] = NoWave /\ ~Outrun(k, run[r])
     /\ l.upto <= run[r].head /\ l.after >= run[r].oldest
     /\ \A t \in carried \ l.apart : k.copies[t].at > l.after => l.upto <= k.copies[t].at
     /\ \E upto \in (IF l.ends = Unseeded THEN l.may ELSE {l.ends}) :
          /\ upto >= l.after /\ upto <= l.upto
          /\ Become(r, Begin(k, "changes", "changes", tables, l.after, upto))
          /\ Sends(r, l, "changes", l.after, upto,
                   [t \in tables |-> [k.copies[t].durable EXCEPT !.at = upto, !.hold = "none",
                                                                 !.resumed = k.copies[t].resumed]])

(* Some may wait a while longer: backoff is policy. *)
SaysStartSeed(r, l) ==
  LET k == K(r)
      tables == DOMAIN l.tables
  IN /\ tables \subseteq {t \in Tables \ paused[r] : /\ k.copies[t].status = "unseeded"
                                                     /\ k.copies[t].at \in {Unseeded, l.upto}
                                                     /\ k.copies[t].durable.at <= l.upto}
     /\ l.upto <= run[r].head /\ k.waves["seed"] = NoWave /\ ~Outrun(k, run[r])
     /\ Become(r, Begin(k, "seed", "replace", tables, l.upto, l.upto))
     /\ Sends(r, l, "replace", l.upto, l.upto,
              [t \in tables |-> [at |-> l.upto, edition |-> k.copies[t].durable.edition + 1, hold |-> "none",
                                 resumed |-> k.copies[t].resumed, shape |-> FALSE]])

SaysPersistIdle(r, l) ==
  LET k == K(r)
      tables == Differing(k)
  IN /\ DOMAIN l.tables = tables /\ k.waves["changes"] = NoWave /\ ~Outrun(k, run[r])
     /\ \A t \in tables : l.leaves[t] = Memory(k.copies[t])
     /\ Become(r, Begin(k, "changes", "persist", tables, l.upto, l.upto))
     /\ Sends(r, l, "persist", l.upto, l.upto, l.leaves)

Answered(r, l, o) ==
  /\ o.answered /\ Mine(r, TheSink, o)
  /\ IF o.kind = "takeover"
     THEN l.action = "Recovered" /\ \A t \in Tables : o.told[t] = l.copies[t].durable
     ELSE /\ l.action = "WaveCommit" /\ SlotOf(o) = l.slot
          /\ \A t \in DOMAIN o.tables : Left(o, t, o.stopped) = l.copies[t].durable

SaysWaveCommit(r, l) ==
  LET k == K(r) IN
  /\ k.phase = "ready" /\ k.waves[l.slot] # NoWave
  /\ \E o \in net :
       /\ Answered(r, l, o)
       /\ Says(r, l, Gaps([Ended(k, l.slot) EXCEPT !.copies =
                             [t \in Tables |-> IF t \in DOMAIN o.tables THEN CopyAt(t, Left(o, t, o.stopped)) ELSE @[t]]],
                          run[r]),
               DOMAIN o.tables)
       /\ net' = net \ {o}
  /\ UNCHANGED <<source, sink, lease, wishes, faults>>

SaysWaveAbort(r, l) ==
  LET k == K(r) IN
  /\ k.phase = "ready" /\ k.waves[l.slot] # NoWave
  /\ Says(r, l, Gaps([Ended(k, l.slot) EXCEPT !.copies = Untaken(k, l.slot)], run[r]), k.waves[l.slot].tables)
  /\ Quiet

SaysAdvance(r, l) ==
  LET k == K(r)
      wave == k.waves["changes"]
  IN /\ k.phase = "ready" /\ wave.kind = "changes" /\ wave.upto = l.upto
     /\ ~\E o \in net : Asked(r, TheSink, "changes", o)
     /\ Says(r, l, Gaps([Ended(k, "changes") EXCEPT !.copies =
                           [t \in Tables |-> IF t \in wave.tables THEN [@[t] EXCEPT !.at = wave.upto] ELSE @[t]]],
                        run[r]),
             wave.tables)
     /\ Quiet

(* History was lost: some that streamed do not any more. *)
SaysLostHistory(r, l) ==
  LET k == K(r)
      lost == {t \in Tables : k.copies[t].status = "streaming" /\ ~InWave(k, t) /\ l.copies[t].status # "streaming"}
  IN k.phase = "ready" /\ ~Outrun(k, run[r]) /\ Says(r, l, k, lost) /\ Quiet

(* A request has a number above those before, and nothing streams from a place that is gone. *)
SaysResumeTable(r, l) ==
  LET k == K(r)
      asked == {t \in Tables : l.copies[t].resumed > k.copies[t].resumed /\ ~InWave(k, t)}
      resumed(t) == [k.copies[t] EXCEPT !.resumed = l.copies[t].resumed,
                                        !.status = IF @ = "held" /\ k.copies[t].at >= run[r].oldest THEN "streaming" ELSE @]
  IN /\ k.phase = "ready" /\ asked # {} /\ ~Outrun(k, run[r])
     /\ \A t \in asked : k.copies[t].status # "held" => l.copies[t].status = k.copies[t].status
     /\ Says(r, l, [k EXCEPT !.copies = [t \in Tables |-> IF t \in asked THEN resumed(t) ELSE @[t]]], asked)
     /\ Quiet

(* Read again, in any case: that an append table keeps its place is seen when it is seeded. *)
SaysCopyAgain(r, l) ==
  LET k == K(r)
      asked == {t \in Tables : l.copies[t].resumed > k.copies[t].resumed /\ ~InWave(k, t)}
  IN /\ k.phase = "ready" /\ asked # {} /\ ~Outrun(k, run[r])
     /\ \A t \in asked : /\ l.copies[t].status = "unseeded"
                          /\ l.copies[t].at \in {Unseeded, k.copies[t].at}
     /\ Says(r, l, [k EXCEPT !.copies = [t \in Tables |-> IF t \in asked THEN [@[t] EXCEPT !.resumed = l.copies[t].resumed]
                                                          ELSE @[t]]],
             asked)
     /\ Quiet

Line(r, l) ==
  CASE l.action = "Observe" -> SaysObserve(r, l)
    [] l.action = "Acquire" -> SaysAcquire(r, l)
    [] l.action = "Lose" -> SaysLose(r)
    [] l.action = "StartRecovery" -> SaysStartRecovery(r, l)
    [] l.action = "Recovered" -> SaysRecovered(r, l)
    [] l.action = "RecoveryFail" -> SaysFail(r, "recovering")
    [] l.action = "StartWave" -> SaysStartWave(r, l)
    [] l.action = "StartSeed" -> SaysStartSeed(r, l)
    [] l.action = "PersistIdle" -> SaysPersistIdle(r, l)
    [] l.action = "WaveCommit" -> SaysWaveCommit(r, l)
    [] l.action = "WaveFail" -> SaysFail(r, "ready")
    [] l.action = "WaveAbort" -> SaysWaveAbort(r, l)
    [] l.action = "Advance" -> SaysAdvance(r, l)
    [] l.action = "LostHistory" -> SaysLostHistory(r, l)
    [] l.action = "ResumeTable" -> SaysResumeTable(r, l)
    [] l.action = "CopyAgain" -> SaysCopyAgain(r, l)
    [] l.action \in {"PauseTable", "UnpauseTable"} ->
         (IF K(r).phase = "ready" THEN Says(r, l, K(r), {}) ELSE UNCHANGED run) /\ Quiet

(* Lines that tell an answer wait for it; all others depend on their own runner alone. So a line that need
   not wait is said at once, in the order of the runners, and the sink moves only while all of them wait:
   nothing is lost by that, because a runner's own steps and another's commute. *)
Next1(r) == Lines(r)[at[r] + 1]
Waits(r) ==
  IF at[r] = Len(Lines(r)) THEN TRUE
  ELSE IF Next1(r).action \notin {"Recovered", "WaveCommit"} THEN FALSE
  ELSE ~\E o \in net : Answered(r, Next1(r), o)

RECURSIVE Total(_)
Total(S) == IF S = {} THEN 0 ELSE LET r == CHOOSE r \in S : TRUE IN at[r] + Total(S \ {r})

HasTurn(r) ==
  IF at[r] = Len(Lines(r)) THEN FALSE ELSE Next1(r).n \in {0, Total(Runners) + 1}

TraceStep ==
  \E r \in Runners :
    /\ HasTurn(r) /\ ~Waits(r) /\ \A q \in Runners : (q < r /\ HasTurn(q)) => Waits(q)
    /\ Line(r, Next1(r)) /\ (Next1(r).action # "Observe" => run'[r].sinks[TheSink].epoch = Next1(r).epoch)
    /\ paused' = IF "copies" \in DOMAIN Next1(r)
                 THEN [paused EXCEPT ![r] = {t \in DOMAIN Next1(r).copies : Next1(r).copies[t].paused}] ELSE paused
    /\ at' = [at EXCEPT ![r] = @ + 1] /\ UNCHANGED case

(* Of the sink's steps only those that change it, or that somebody waits for; tables stop only where some
   line shows it. *)
Stops == {t \in Tables : sink'[TheSink].copies[t].v.hold = "fault" /\ Version(TheSink, t).hold # "fault"}
Hidden ==
  /\ \A r \in Runners : HasTurn(r) => Waits(r)
  /\ \E o \in net : /\ TakesOver(o) \/ Commits(o)
                    /\ Stops \subseteq Cases[case].stops
                    /\ sink' # sink \/ (o.run # Nobody /\ o.epoch = K(o.run).epoch)
  /\ UNCHANGED <<case, at, paused>>

Complete == \A r \in Runners : at[r] = Len(Lines(r))
TraceNext == ~Complete /\ (TraceStep \/ Hidden)
TraceSpec == TraceInit /\ [][TraceNext]_<<vars, case, at, paused>>

(* What can still matter. A runner that has said all of its lines hears nothing any more. States that differ
   in nothing else are one: else every answer that was lost would double them, for the rest of the life. A view
   can hide a behaviour, never invent one: what is accepted is allowed. *)
Done(r) == at[r] = Len(Lines(r))
Left1(r) == IF Done(r) THEN Fresh ELSE run[r]
View == <<case, at, head, oldest, sink, paused, Tidy(net, sink, [r \in Runners |-> Left1(r)]),
          [r \in Runners |-> Left1(r)]>>

(* Not a law: tells how far each case came. *)
Report == PrintT(<<IF Complete THEN "accepted" ELSE "reached", case, Total(Runners)>>)
=============================================================================
