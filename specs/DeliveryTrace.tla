--------------------------- MODULE DeliveryTrace ---------------------------
(***************************************************************************)
(* Whether Delivery allows what a real run did.                            *)
(*                                                                         *)
(* A case is one sink's life: for each runner (process) the lines of its   *)
(* trace that concern the sink, in order. `n` is a line's place among all   *)
(* of the case, by the clock of the machine they ran on; 0: not known, and  *)
(* TLC interleaves the runners as it likes. The environment (takeovers and  *)
(* commits at the sink, of any order ever sent) happens in between: a case  *)
(* is accepted when some behaviour of the spec says all of its lines. Rows  *)
(* are not in a trace, so the history is blank and any window may carry     *)
(* something or nothing. Leases are not either: the sink's fence decides.   *)
(***************************************************************************)
EXTENDS Delivery, TLC

CONSTANTS Cases, Last   \* the cases, and the highest position in them

VARIABLES case, at      \* at: [Runners -> lines said]

Blank == [n \in 1..Last |-> [rows |-> Nothing, ev |-> [s \in Sinks |-> <<>>], share |-> [s \in Sinks |-> NoBag]]]
Blanks == <<Blank>>
TheSink == CHOOSE s \in Sinks : TRUE
Lines(r) == Cases[case][r]
K(r) == St(r, TheSink)

TraceInit == /\ Init /\ case \in DOMAIN Cases /\ at = [r \in Runners |-> 0]

Quiet == UNCHANGED <<source, sink, lease, net, faults>>

SaysObserve(r, l) ==
  /\ l.head >= run[r].head /\ l.oldest >= run[r].oldest
  /\ head' = Max(head, l.head) /\ oldest' = Max(oldest, l.oldest)
  /\ run' = [run EXCEPT ![r] = [oldest |-> l.oldest, head |-> l.head,
                                sinks |-> [s \in Sinks |-> Gap(St(r, s), l.oldest)]]]
  /\ UNCHANGED <<which, sink, lease, net, faults>>

SaysAcquire(r, l) == l.token > 0 /\ Set(r, TheSink, Reset(K(r), "acquired", l.token)) /\ Quiet
SaysLose(r) == K(r).phase # "unowned" /\ Set(r, TheSink, Reset(K(r), "unowned", 0)) /\ Quiet
SaysStartRecovery(r, l) == K(r).token = l.token /\ StartRecovery(r, TheSink)

Told(r, l) == [AtCursor(r, K(r), l.cursor) EXCEPT !.copy = IF l.copy = "streaming" THEN @ ELSE l.copy]
Honest(r, l) == l.copy = "streaming" => AtCursor(r, K(r), l.cursor).copy = "streaming"

SaysRecovered(r, l) ==
  /\ K(r).phase = "recovering" /\ Honest(r, l)
  /\ \E o \in net : /\ o.kind = "takeover" /\ o.answered /\ Mine(r, TheSink, o) /\ o.cursor = l.cursor
                    /\ net' = net \ {o}
  /\ Set(r, TheSink, Told(r, l)) /\ UNCHANGED <<source, sink, lease, faults>>

SaysFail(r, phase) == K(r).phase = phase /\ Set(r, TheSink, Reset(K(r), "acquired", K(r).token)) /\ Quiet

(* `ends`: the window's end where an answer tells it. Otherwise one of those that a cursor shows later
   (`may`): an end that nobody ever sees explains nothing. *)
SaysStartWave(r, l) ==
  /\ K(r).phase = "idle" /\ K(r).copy \in {"streaming", "mixed"}
  /\ l.expected = K(r).cursor /\ l.after = K(r).position /\ l.upto <= run[r].head /\ l.after >= run[r].oldest
  /\ \E upto \in (IF l.ends = Unseeded THEN l.may ELSE {l.ends}) :
       /\ upto >= l.after /\ upto <= l.upto
       /\ Begin(r, TheSink, "changes", upto)
       /\ net' = net \/ net' = net \cup {Order(r, TheSink, "changes", l.after, upto)}
  /\ UNCHANGED <<source, sink, lease, faults>>

SaysStartSeed(r, l) ==
  /\ K(r).phase = "idle" /\ K(r).copy \in {"unseeded", "held", "mixed"}
  /\ l.expected = K(r).cursor /\ l.upto >= K(r).cursor /\ l.upto <= run[r].head
  /\ Begin(r, TheSink, "replace", l.upto)
  /\ net' = net \/ net' = net \cup {Order(r, TheSink, "replace", l.upto, l.upto)}
  /\ UNCHANGED <<source, sink, lease, faults>>

SaysPersistIdle(r, l) ==
  /\ K(r).phase = "idle" /\ l.expected = K(r).cursor /\ l.upto = K(r).position /\ K(r).cursor < K(r).position
  /\ Begin(r, TheSink, "persist", l.upto)
  /\ net' = net \cup {Order(r, TheSink, "persist", l.upto, l.upto)}
  /\ UNCHANGED <<source, sink, lease, faults>>

SaysWaveCommit(r, l) ==
  /\ K(r).phase = "applying" /\ l.cursor = K(r).wave.upto /\ Honest(r, l)
  /\ \E o \in net : o.kind # "takeover" /\ o.answered /\ Mine(r, TheSink, o) /\ o.upto = l.cursor
  /\ Set(r, TheSink, Told(r, l)) /\ Quiet

SaysWaveAbort(r) ==
  /\ K(r).phase = "applying"
  /\ Set(r, TheSink, Gap([K(r) EXCEPT !.phase = "idle", !.wave = NoWave], run[r].oldest)) /\ Quiet

SaysAdvance(r, l) ==
  /\ K(r).phase = "applying" /\ K(r).wave.kind = "changes" /\ K(r).wave.upto = l.upto
  /\ ~\E o \in net : Asked(r, TheSink, o)
  /\ LET k == Gap([K(r) EXCEPT !.phase = "idle", !.position = l.upto, !.wave = NoWave], run[r].oldest)
     IN /\ l.copy = "streaming" => k.copy \in {"streaming", "mixed"}
        /\ Set(r, TheSink, [k EXCEPT !.copy = IF l.copy = "streaming" THEN @ ELSE l.copy])
  /\ Quiet

(* Paused, resumed or lost: always allowed, but nothing streams from a place that is gone. *)
SaysCopies(r, l) ==
  /\ K(r).phase = "idle" /\ (l.copy = "streaming" => K(r).position >= run[r].oldest)
  /\ Set(r, TheSink, [K(r) EXCEPT !.copy = l.copy]) /\ Quiet

Says(r, l) ==
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
    [] l.action = "WaveFail" -> SaysFail(r, "applying")
    [] l.action = "WaveAbort" -> SaysWaveAbort(r)
    [] l.action = "Advance" -> SaysAdvance(r, l)
    [] l.action \in {"LostHistory", "PauseTable", "ResumeTable"} -> SaysCopies(r, l)

(* Lines that tell an answer wait for it; all others depend on their own runner alone. So a line that need
   not wait is said at once, in the order of the runners, and the sink moves only while all of them wait:
   nothing is lost by that, because a runner's own steps and another's commute. *)
Next1(r) == Lines(r)[at[r] + 1]
Answered(r, line, o) ==
  /\ o.answered /\ Mine(r, TheSink, o)
  /\ IF line.action = "Recovered" THEN o.kind = "takeover" /\ o.cursor = line.cursor
     ELSE o.kind # "takeover" /\ o.upto = line.cursor
Waits(r) ==
  IF at[r] = Len(Lines(r)) THEN TRUE
  ELSE IF Next1(r).action \notin {"Recovered", "WaveCommit"} THEN FALSE
  ELSE ~\E o \in net : IF o.answered THEN Answered(r, Next1(r), o) ELSE FALSE

RECURSIVE Total(_)
Total(S) == IF S = {} THEN 0 ELSE LET r == CHOOSE r \in S : TRUE IN at[r] + Total(S \ {r})

HasTurn(r) ==
  IF at[r] = Len(Lines(r)) THEN FALSE ELSE Next1(r).n \in {0, Total(Runners) + 1}

TraceStep ==
  \E r \in Runners :
    /\ HasTurn(r) /\ ~Waits(r) /\ \A q \in Runners : (q < r /\ HasTurn(q)) => Waits(q)
    /\ Says(r, Next1(r)) /\ (Next1(r).action # "Observe" => run'[r].sinks[TheSink].epoch = Next1(r).epoch)
    /\ at' = [at EXCEPT ![r] = @ + 1] /\ UNCHANGED case

(* Of the sink's steps only those that change it, or that somebody waits for. *)
Hidden ==
  /\ \A r \in Runners : HasTurn(r) => Waits(r)
  /\ \E o \in net : /\ TakesOver(o) \/ Commits(o)
                    /\ sink' # sink \/ \E r \in Runners : Asked(r, TheSink, o)
  /\ UNCHANGED <<case, at>>

Complete == \A r \in Runners : at[r] = Len(Lines(r))
TraceNext == ~Complete /\ (TraceStep \/ Hidden)
TraceSpec == TraceInit /\ [][TraceNext]_<<vars, case, at>>

(* What can still matter. A runner that has said all of its lines hears nothing any more, and nobody hears an
   answer of an older epoch; such an order counts only as long as it could still change the sink, and tokens
   and cursors never go back. States that differ in nothing else are one: else every answer that was lost
   would double them, for the rest of the life. A view can hide a behaviour, never invent one: what is
   accepted is allowed. *)
Done(r) == at[r] = Len(Lines(r))
Heard(o) == ~Done(o.run) /\ o.epoch = K(o.run).epoch
Matters(o) ==
  IF Heard(o) THEN TRUE
  ELSE IF o.kind = "takeover" THEN ~o.answered /\ o.token > sink[TheSink].token
  ELSE o.token >= sink[TheSink].token /\ o.expected >= sink[TheSink].cursor
View == <<case, at, head, oldest, sink, {o \in net : Matters(o)},
          [r \in Runners |-> IF Done(r) THEN Fresh ELSE run[r]]>>

(* Not a law: tells how far each case came. *)
Report == PrintT(<<IF Complete THEN "accepted" ELSE "reached", case, Total(Runners)>>)
=============================================================================
