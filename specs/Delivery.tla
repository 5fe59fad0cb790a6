------------------------------ MODULE Delivery ------------------------------
(***************************************************************************)
(* Delivery of one change log to many sinks by several runners.            *)
(*                                                                         *)
(* An order moves copies, not sinks: a copy is one table at one sink, with *)
(* a version of its own, durable in every commit. A runner leases a sink   *)
(* (fencing token), takes it over (the sink's token rises, the versions    *)
(* are read), and then sends orders: for each table from the version       *)
(* expected to the version it leaves. The sink's commit is one atomic step *)
(* that checks token and versions and writes data and versions; copies     *)
(* that the order does not name stay as they are. Orders live on in the    *)
(* network after their runner crashed, was reset or lost the lease; they   *)
(* may run at any later time, and more than once. Runner actions bear the  *)
(* names of the functions of src/truecut/core/delivery.py; the rest is the *)
(* environment: source, sinks, leases, users.                              *)
(***************************************************************************)
EXTENDS History

CONSTANTS
  Runners,
  Histories,    \* the source's possible histories, a sequence (Init picks one; SrcCommit reveals it)
  MaxFaults,    \* how many leases may run out, runners crash, answers get lost, tables stop or be paused, in total
  MaxExpire,    \* `oldest` may rise to this
  Junk,         \* whether a sink holds left-over rows before its first seed
  StoreLoss,    \* whether the control store may be deleted
  ReplacedAt,   \* the first position of another source at the same address; 0: it is never replaced
  SendEmpty,    \* whether a window that holds nothing for a sink may be sent all the same
  Users         \* what may happen to tables: "pause", "stop" (a window's fault holds one), "accept",
                \* "unread" (a table cannot be read for a while), "again" (somebody wants one read again)

VARIABLES
  which,    \* the source's history, whole: an index of Histories
  head,     \* how much of it is committed
  oldest,   \* windows may start here or later
  sink,     \* [Sinks -> token, copies: [Tables -> version, data]]: durable, one row with the data
  lease,    \* [Sinks -> holder, token]: the control store
  net,      \* orders and their answers
  run,      \* [Runners -> src, oldest, head as observed, and what is known of each sink]
  wishes,   \* paused: tables; accepted: tables whose changed settings shall be followed; asked: requests, by their
            \* numbers; again: of those that ask to read a table again, the edition that answers it
  faults,   \* how many faults have happened
  numbered  \* whether the control store knows which generation the source's positions are of

vars == <<which, head, oldest, sink, lease, net, run, wishes, faults, numbered>>

hist == Histories[which]

Unseeded == -1
Nobody == "nobody"
Slots == {"changes", "seed"}   \* a sink may be in one wave of each at a time
NoWave == [kind |-> "none", tables |-> {}, after |-> Unseeded, upto |-> Unseeded]

(* A copy's version. It never returns to what it was: a seed that ends where the copy stands makes another
   edition; a hold goes only with a request that was answered (`resumed` is its number), or with a seed. *)
NoVersion == [at |-> Unseeded, edition |-> 0, hold |-> "none", resumed |-> 0, shape |-> FALSE]
NoCopy == [status |-> "none", at |-> Unseeded, hold |-> "none", resumed |-> 0, durable |-> NoVersion]
Unowned == [phase |-> "unowned", token |-> 0, epoch |-> 0, copies |-> [t \in Tables |-> NoCopy],
            waves |-> [w \in Slots |-> NoWave]]
Fresh == [src |-> 1, oldest |-> 0, head |-> 0, sinks |-> [s \in Sinks |-> Unowned]]

(* A source that is replaced has a history of its own, whose positions are above all earlier ones: they are
   of a later generation. So a position tells its generation, and which source it is a place of. *)
GenOf(p) == IF ReplacedAt > 0 /\ p >= ReplacedAt THEN 2 ELSE 1
SrcOf(p) == GenOf(p)

Leftover(t) ==
  IF Mode = "append" THEN <<>>
  ELSE IF Junk THEN [NoBag(t) EXCEPT ![<<CHOOSE k \in KeysOf(t) : TRUE, 1>>] = 1] ELSE NoBag(t)

Init ==
  /\ which \in DOMAIN Histories
  /\ head = 0 /\ oldest = 0 /\ faults = 0 /\ net = {} /\ numbered = TRUE
  /\ sink = [s \in Sinks |-> [token |-> 0,
                              copies |-> [t \in Tables |-> [v |-> NoVersion, made |-> FALSE, data |-> Leftover(t)]]]]
  /\ lease = [s \in Sinks |-> [holder |-> Nobody, token |-> 0]]
  /\ run = [r \in Runners |-> Fresh]
  /\ wishes = [paused |-> {}, accepted |-> {}, asked |-> [s \in Sinks |-> [t \in Tables |-> 0]],
               again |-> [s \in Sinks |-> [t \in Tables |-> 0]]]

St(r, s) == run[r].sinks[s]
Set(r, s, state) == run' = [run EXCEPT ![r].sinks[s] = state]
Version(s, t) == sink[s].copies[t].v
Fault == faults < MaxFaults /\ faults' = faults + 1
source == <<which, head, oldest, numbered>>

(* Messages that can still matter: somebody waits for the answer, or they could still change the sink. The
   others are forgotten; that none of them comes to life again is CursorMonotonicity and TokenMonotonicity. *)
Reviving == {"no_epoch_check", "no_fence", "takeover_unfenced", "expected_unchecked", "seed_unchecked",
             "only_places_are_compared"}   \* with these, even such a message may matter
Matters(o, sinks, runs) ==
  \/ Bugs \cap Reviving # {}
  \/ IF o.run = Nobody THEN FALSE ELSE runs[o.run].sinks[o.sink].epoch = o.epoch
  \/ IF o.kind = "takeover" THEN ~o.answered /\ o.token > sinks[o.sink].token
     ELSE /\ o.token = sinks[o.sink].token
          /\ \A t \in DOMAIN o.tables : sinks[o.sink].copies[t].v = o.tables[t].expected
Tidy(orders, sinks, runs) == {o \in orders : Matters(o, sinks, runs)}

-----------------------------------------------------------------------------
(* The environment. *)

(* Of a source that was replaced nothing earlier can be read. *)
SrcCommit ==
  /\ head < Len(hist) /\ head' = head + 1
  /\ oldest' = IF head' = ReplacedAt THEN head' ELSE oldest
  /\ UNCHANGED <<which, sink, lease, net, run, wishes, faults, numbered>>

Expire ==
  /\ oldest < head /\ oldest < MaxExpire /\ oldest' = oldest + 1
  /\ UNCHANGED <<which, head, sink, lease, net, run, wishes, faults, numbered>>

(* A lease runs out. Its holder may be paused and not know for as long as it likes. *)
LeaseOut(s) ==
  /\ lease[s].holder # Nobody /\ Fault
  /\ lease' = [lease EXCEPT ![s].holder = Nobody]
  /\ UNCHANGED <<source, sink, net, run, wishes>>

(* The control store is deleted: nobody holds anything, its tokens are forgotten, and so is that there was
   another source before this one. *)
StoreLost ==
  /\ StoreLoss /\ \E s \in Sinks : lease[s].token > 0
  /\ Fault
  /\ lease' = [s \in Sinks |-> [holder |-> Nobody, token |-> 0]]
  /\ numbered' = (ReplacedAt = 0)
  /\ UNCHANGED <<which, head, oldest, sink, net, run, wishes>>

(* The process dies: its memory and all answers to it are lost, its orders are not. *)
NotTold == [t \in Tables |-> NoVersion]
Orphan(o) == IF o.kind = "takeover"
             THEN [o EXCEPT !.run = Nobody, !.epoch = 0, !.answered = FALSE, !.told = NotTold]
             ELSE [o EXCEPT !.run = Nobody, !.epoch = 0, !.answered = FALSE, !.stopped = {}]
Dies(dead) ==
  /\ run' = [r \in Runners |-> IF r \in dead THEN Fresh ELSE run[r]]
  /\ lease' = [s \in Sinks |-> IF lease[s].holder \in dead THEN [lease[s] EXCEPT !.holder = Nobody] ELSE lease[s]]
  /\ net' = Tidy({IF o.run \in dead THEN Orphan(o) ELSE o : o \in net}, sink, run')

Crash(r) ==
  /\ run[r] # Fresh /\ Fault
  /\ Dies({r})
  /\ UNCHANGED <<source, sink, wishes>>

(* Users. A pause is a file: whoever runs sees it at once, and it outlives everybody. *)
PauseTable(t) ==
  /\ "pause" \in Users /\ t \notin wishes.paused /\ Fault
  /\ wishes' = [wishes EXCEPT !.paused = @ \cup {t}]
  /\ UNCHANGED <<source, sink, lease, net, run>>

UnpauseTable(t) ==
  /\ t \in wishes.paused
  /\ wishes' = [wishes EXCEPT !.paused = @ \ {t}]
  /\ UNCHANGED <<source, sink, lease, net, run, faults>>

(* Somebody sees a table that is held, and asks that it goes on: a request with a number above those before. *)
AskResume(s, t) ==
  /\ wishes.asked[s][t] = 0
  /\ \/ Version(s, t).hold # "none"
     \/ \E r \in Runners : /\ lease[s] = [holder |-> r, token |-> St(r, s).token]
                            /\ St(r, s).copies[t].status = "held"
  /\ wishes' = [wishes EXCEPT !.asked[s][t] = Version(s, t).resumed + 1]
  /\ UNCHANGED <<source, sink, lease, net, run, faults>>

(* Somebody wants a table read again, whatever became of its copy: a request like any other, which a copy of
   another edition answers. *)
AskAgain(s, t) ==
  /\ "again" \in Users /\ wishes.asked[s][t] = 0 /\ Version(s, t).at # Unseeded /\ Fault
  /\ wishes' = [wishes EXCEPT !.asked[s][t] = Version(s, t).resumed + 1, !.again[s][t] = Version(s, t).edition + 1]
  /\ UNCHANGED <<source, sink, lease, net, run>>

(* The settings of a table are changed, and the pipeline is started again with leave to replace its copies. *)
Accept(t) ==
  /\ "accept" \in Users /\ t \notin wishes.accepted /\ Fault
  /\ wishes' = [wishes EXCEPT !.accepted = @ \cup {t}]
  /\ Dies(Runners)
  /\ UNCHANGED <<source, sink>>

(* Recovery at the sink: the fence rises to the order's token, the versions are told. *)
TakesOver(o) ==
  /\ o.kind = "takeover" /\ ~o.answered
  /\ o.token >= sink[o.sink].token \/ "takeover_unfenced" \in Bugs
  /\ sink' = [sink EXCEPT ![o.sink].token = o.token]
  /\ \/ net' = Tidy((net \ {o}) \cup {[o EXCEPT !.answered = TRUE, !.told = [t \in Tables |-> Version(o.sink, t)]]},
                    sink', run)
     \/ net' = Tidy(net, sink', run) /\ sink' # sink   \* it runs again, and only the second answer arrives
  /\ UNCHANGED <<source, lease, run, wishes, faults>>

Seen(v) ==   \* what the sink compares
  IF "only_places_are_compared" \in Bugs THEN [at |-> v.at] ELSE v
Passes(o) == o.token = sink[o.sink].token \/ "no_fence" \in Bugs
Unchecked(o) == "expected_unchecked" \in Bugs \/ ("seed_unchecked" \in Bugs /\ o.kind = "replace")
Fits(o) == Unchecked(o) \/ \A t \in DOMAIN o.tables : Seen(Version(o.sink, t)) = Seen(o.tables[t].expected)

(* What an order leaves: a window's fault may hold a table where it is, while the others go on. *)
Stopped(o, t) == [o.tables[t].expected EXCEPT !.hold = "fault", !.resumed = o.tables[t].leaves.resumed]
Left(o, t, stops) == IF t \in stops THEN Stopped(o, t) ELSE o.tables[t].leaves
Already(o) == ~Fits(o) /\ \A t \in DOMAIN o.tables : Version(o.sink, t) \in {o.tables[t].leaves, Stopped(o, t)}
StopsOf(o) == {t \in DOMAIN o.tables : Version(o.sink, t) # o.tables[t].leaves}

DataAfter(o, t) ==
  LET data == sink[o.sink].copies[t].data
  IN CASE o.kind = "changes" -> Written(hist, o.sink, t, data, o.after, o.upto)
       [] o.kind = "replace" -> Seeded(hist, o.sink, t, IF o.tables[t].leaves.shape = sink[o.sink].copies[t].made
                                                        THEN data ELSE Leftover(t), o.upto)
       [] OTHER -> data

CopyAfter(o, t, stops) ==
  LET c == sink[o.sink].copies[t] IN
  IF t \in DOMAIN o.tables
  THEN IF t \in stops \/ ("accept_already" \in Bugs /\ o.kind = "replace" /\ c.v.at = o.upto)
       THEN [c EXCEPT !.v = Left(o, t, stops)]
       ELSE [v |-> Left(o, t, stops), made |-> o.tables[t].leaves.shape, data |-> DataAfter(o, t)]
  ELSE IF "sink_moves_all_copies" \in Bugs /\ c.v.at # Unseeded /\ c.v.hold = "none"
  THEN [c EXCEPT !.v.at = Max(@, o.upto)]
  ELSE c

MayStop(o, stops) ==
  IF stops = {} THEN UNCHANGED faults ELSE "stop" \in Users /\ o.kind # "persist" /\ Fault

(* An order runs: in one step all of it, or nothing. *)
Commits(o) ==
  /\ o.kind # "takeover" /\ Passes(o)
  /\ \/ /\ Already(o) /\ ~o.answered
        /\ UNCHANGED <<sink, faults>>
        /\ net' = (net \ {o}) \cup {[o EXCEPT !.answered = TRUE, !.stopped = StopsOf(o)]}
     \/ \E stops \in SUBSET DOMAIN o.tables :
        /\ Fits(o) /\ MayStop(o, stops)
        /\ sink' = [sink EXCEPT ![o.sink].copies = [t \in Tables |-> CopyAfter(o, t, stops)]]
        /\ net' = Tidy((net \ {o}) \cup {[o EXCEPT !.answered = TRUE, !.stopped = stops]}, sink', run)
     \/ /\ "cursor_apart_from_data" \in Bugs /\ Fits(o)   \* killed before the versions are written
        /\ sink' = [sink EXCEPT ![o.sink].copies =
                      [t \in Tables |-> IF t \in DOMAIN o.tables THEN [@[t] EXCEPT !.data = DataAfter(o, t)] ELSE @[t]]]
        /\ UNCHANGED <<net, faults>>
  /\ UNCHANGED <<source, lease, run, wishes>>

SinkTakeover == \E o \in net : TakesOver(o)
SinkCommit == \E o \in net : Commits(o)

-----------------------------------------------------------------------------
(* A runner's knowledge. *)

Reset(k, phase, token) == [Unowned EXCEPT !.phase = phase, !.token = token, !.epoch = k.epoch + 1]
InWave(k, t) == \E w \in Slots : t \in k.waves[w].tables
Free(k, t) == ~InWave(k, t) \/ "wave_while_applying" \in Bugs
Idle(k, w) == k.waves[w] = NoWave \/ "wave_while_applying" \in Bugs

ToSeed(c) == [c EXCEPT !.status = "unseeded", !.at = Unseeded, !.hold = "none"]
ToHold(c, code) == [c EXCEPT !.status = "held", !.hold = code]
ToStream(c) == [c EXCEPT !.status = "streaming", !.hold = "none"]

(* Whether the look is older than the copy: of an earlier generation, or of another source than the copy's,
   under the same number. Then it says nothing of the copy, nor what may be sent to its sink. *)
Beyond(c, look) ==
  /\ c.durable.at # Unseeded /\ "stale_look_believed" \notin Bugs
  /\ \/ GenOf(c.durable.at) > GenOf(look.head)
     \/ GenOf(c.durable.at) = GenOf(look.head) /\ SrcOf(c.durable.at) # look.src
Outrun(k, look) == \E t \in Tables : Beyond(k.copies[t], look)

(* Nothing is read across a gap: a mirror is seeded anew, an append table is held. *)
AcrossGap(t, c) == IF Mode = "append" THEN ToHold(c, "gap") ELSE ToSeed(c)
Gap(t, c, look) ==
  IF c.status = "streaming" /\ c.at < look.oldest /\ ~Beyond(c, look) /\ "read_across_gap" \notin Bugs
  THEN AcrossGap(t, c) ELSE c
Gaps(k, look) ==
  IF k.phase # "ready" THEN k
  ELSE [k EXCEPT !.copies = [t \in Tables |-> IF InWave(k, t) THEN @[t] ELSE Gap(t, @[t], look)]]

(* What a sink's own word says of a copy. Other settings shaped it: it is replaced, for that was accepted;
   where it had to stop, when somebody has it go on. *)
Shaped(t, v) == v.shape = (t \in wishes.accepted)
CopyAt(t, v) ==
  LET c == [status |-> "streaming", at |-> v.at, hold |-> "none", resumed |-> v.resumed, durable |-> v]
  IN IF v.hold # "none" THEN ToHold(c, v.hold)
     ELSE IF v.at = Unseeded \/ ~Shaped(t, v) THEN ToSeed(c)
     ELSE c

(* What it would be in the sink if it were written down now. *)
Memory(c) == [c.durable EXCEPT !.at = c.at, !.hold = c.hold, !.resumed = c.resumed]

(* What a look tells. Where the store has forgotten the earlier source, the present one's positions are
   given out as if they were of the first generation; to sinks without any copy one number is as good as another. *)
Late == [src |-> 1, oldest |-> 0, head |-> ReplacedAt - 1]
Misnumbered == [src |-> 2, oldest |-> 0, head |-> ReplacedAt - 1]
Present == IF GenOf(head) = 2 /\ ~numbered /\ \E c \in Sinks \X Tables : Version(c[1], c[2]).at # Unseeded
           THEN Misnumbered
           ELSE [src |-> SrcOf(head), oldest |-> oldest, head |-> head]
LookOf(r) == [src |-> run[r].src, oldest |-> run[r].oldest, head |-> run[r].head]

(* A look of an older generation than the last one changes nothing. *)
Look(r, look) ==
  /\ look # LookOf(r) /\ GenOf(look.head) >= GenOf(run[r].head)
  /\ run' = [run EXCEPT ![r] = [src |-> look.src, oldest |-> look.oldest, head |-> look.head,
                                sinks |-> [s \in Sinks |-> Gaps(St(r, s), look)]]]
  /\ UNCHANGED <<source, sink, lease, net, wishes, faults>>

(* A place turns out to be unreadable although it is within what was observed. *)
LostHistory(r, s) ==
  LET k == St(r, s) IN
  /\ k.phase = "ready" /\ ~Outrun(k, run[r]) /\ Fault
  /\ \E t \in Tables : /\ k.copies[t].status = "streaming" /\ ~InWave(k, t)
                       /\ Set(r, s, [k EXCEPT !.copies[t] = AcrossGap(t, @)])
  /\ UNCHANGED <<source, sink, lease, net, wishes>>

(* Looking while it owns nothing could change nothing but what is looked at again later. *)
Owns(r) == \E s \in Sinks : St(r, s).phase # "unowned"
Observe(r) == Owns(r) /\ Look(r, Present)

(* A look at the former source, whose answer comes after it was replaced. A runner's looks come in order. *)
ObserveLate(r) == Owns(r) /\ GenOf(head) = 2 /\ run[r].src = 1 /\ Look(r, Late)

(* The store does not know the generation that a sink shows, or that a runner still knows: it is told. *)
Heard(r) ==
  /\ ~numbered /\ "generation_not_heard" \notin Bugs
  /\ \/ GenOf(run[r].head) = 2
     \/ \E s \in Sinks : St(r, s).phase = "ready" /\ Outrun(St(r, s), run[r])
  /\ numbered' = TRUE
  /\ UNCHANGED <<which, head, oldest, sink, lease, net, run, wishes, faults>>

(* A request is taken up: a held copy goes on from its own place where that can be read, else a mirror is
   seeded and an append table is held for the gap; asked once more, it is read whole. Whatever it was,
   it bears the request's number from now on, and with its next commit that is durable. *)
Resumed(t, c, old) ==
  IF c.status # "held" THEN c
  ELSE IF c.at = Unseeded \/ Mode = "mirror" \/ c.hold = "gap" THEN ToSeed(c)
  ELSE IF ~Shaped(t, c.durable) /\ "resumed_unshaped" \notin Bugs THEN ToSeed(c)
  ELSE IF c.at >= old THEN ToStream(c)
  ELSE ToHold(c, "gap")

ResumeTable(r, s) ==
  LET k == St(r, s) IN
  /\ k.phase = "ready" /\ ~Outrun(k, run[r])
  /\ \E t \in Tables :
       /\ wishes.again[s][t] = 0 /\ k.copies[t].resumed < wishes.asked[s][t] /\ ~InWave(k, t)
       /\ Set(r, s, [k EXCEPT !.copies[t] = [Resumed(t, @, run[r].oldest) EXCEPT !.resumed = wishes.asked[s][t]]])
       /\ wishes' = IF "resume_not_durable" \in Bugs THEN [wishes EXCEPT !.asked[s][t] = 0] ELSE wishes
  /\ UNCHANGED <<source, sink, lease, net, faults>>

(* A mirror is replaced, whatever it holds. An append table goes on from its place: the rows are those of that
   place, so no change is told twice, and none is missed. One that had to stop is resumed first. *)
Again(c) ==
  IF "again_unread" \in Bugs THEN c
  ELSE IF Mode = "append" /\ c.status = "streaming" /\ "again_at_head" \notin Bugs THEN [c EXCEPT !.status = "unseeded"]
  ELSE ToSeed(c)

CopyAgain(r, s) ==
  LET k == St(r, s) IN
  /\ k.phase = "ready" /\ ~Outrun(k, run[r])
  /\ \E t \in Tables :
       /\ wishes.again[s][t] > 0 /\ k.copies[t].resumed < wishes.asked[s][t] /\ ~InWave(k, t)
       /\ Mode = "append" => k.copies[t].hold # "fault"
       /\ Set(r, s, [k EXCEPT !.copies[t] = [Again(@) EXCEPT !.resumed = wishes.asked[s][t]]])
  /\ UNCHANGED <<source, sink, lease, net, wishes, faults>>

(* Accepted and durable are two words: a request is answered when the sink's own copy shows its number. *)
Answer(r, s) ==
  /\ St(r, s).phase = "ready"
  /\ \E t \in Tables :
       /\ wishes.asked[s][t] > 0 /\ St(r, s).copies[t].durable.resumed >= wishes.asked[s][t]
       /\ wishes' = [wishes EXCEPT !.asked[s][t] = 0, !.again[s][t] = 0]
  /\ UNCHANGED <<source, sink, lease, net, run, faults>>

-----------------------------------------------------------------------------
(* Leases and recovery. *)

AcquireWith(r, s, token) ==
  /\ lease' = [lease EXCEPT ![s] = [holder |-> r, token |-> token]]
  /\ Set(r, s, Reset(St(r, s), "acquired", token))
  /\ net' = Tidy(net, sink, run')
  /\ UNCHANGED <<source, sink, wishes, faults>>

(* The code takes tokens from the clock, so that a store that was lost gives none a second time, whoever is
   still alive with one. *)
Given(s) == {lease[s].token, sink[s].token} \cup {St(r, s).token : r \in Runners}
            \cup {o.token : o \in {p \in net : p.sink = s}}
NextToken(s) == 1 + IF "token_reused_after_loss" \in Bugs THEN lease[s].token ELSE MaxOf(Given(s))

Acquire(r, s) ==
  \/ lease[s].holder = Nobody /\ AcquireWith(r, s, NextToken(s))
  \* The sink has seen a newer token than the store knows: ours must be above it.
  \/ /\ lease[s].holder = r /\ St(r, s).phase \in {"acquired", "recovering"}
     /\ St(r, s).token = lease[s].token /\ lease[s].token < sink[s].token
     /\ AcquireWith(r, s, MaxOf(Given(s)) + 1)

(* Also of a sink that was taken out of the pipeline (`retire`): its lease ends as if it had run out (LeaseOut),
   and this runner never acquires it again, unless it is enlisted anew. Sinks is every sink that there ever is; to
   a runner that does not know one yet it is unowned. So pipelines that change have no behaviours of their own. *)
Lose(r, s) ==
  /\ St(r, s).phase # "unowned" /\ (lease[s].holder # r \/ lease[s].token # St(r, s).token)
  /\ Set(r, s, Reset(St(r, s), "unowned", 0))
  /\ net' = Tidy(net, sink, run')
  /\ UNCHANGED <<source, sink, lease, wishes, faults>>

TakeoverOf(r, s) == [kind |-> "takeover", run |-> r, sink |-> s, epoch |-> St(r, s).epoch,
                     token |-> St(r, s).token, answered |-> FALSE, told |-> NotTold]

StartRecovery(r, s) ==
  /\ St(r, s).phase = "acquired"
  /\ Set(r, s, [St(r, s) EXCEPT !.phase = "recovering"])
  /\ net' = net \cup {TakeoverOf(r, s)}
  /\ UNCHANGED <<source, sink, lease, wishes, faults>>

Mine(r, s, o) == o.run = r /\ o.sink = s /\ (o.epoch = St(r, s).epoch \/ "no_epoch_check" \in Bugs)

Ready(r, s, told) ==
  Gaps([St(r, s) EXCEPT !.phase = "ready", !.copies = [t \in Tables |-> CopyAt(t, told[t])]], run[r])

Recovered(r, s) ==
  /\ St(r, s).phase = "recovering"
  /\ \E o \in net :
       /\ o.kind = "takeover" /\ o.answered /\ Mine(r, s, o)
       /\ Set(r, s, Ready(r, s, o.told))
       /\ net' = net \ {o}
  /\ UNCHANGED <<source, sink, lease, wishes, faults>>

(* Whether the runner's own message can still be answered well. *)
Hopeless(o) == IF o.kind = "takeover" THEN o.token < sink[o.sink].token
               ELSE ~Passes(o) \/ ~(Fits(o) \/ Already(o))
(* Within an epoch a sink's slot names the wave; the code numbers its waves. *)
SlotOf(o) == IF o.kind = "replace" THEN "seed" ELSE "changes"
Asked(r, s, w, o) ==
  /\ o.run = r /\ o.sink = s /\ o.epoch = St(r, s).epoch
  /\ IF o.kind = "takeover" THEN FALSE ELSE SlotOf(o) = w
Doomed(r, s, w) == /\ \E o \in net : Asked(r, s, w, o)
                   /\ \A o \in net : Asked(r, s, w, o) => ~o.answered /\ Hopeless(o)

(* A refusal for ever is answered by a higher token (Acquire) or by giving up (Lose). *)
RecoveryFail(r, s) ==
  /\ St(r, s).phase = "recovering" /\ Fault
  /\ Set(r, s, Reset(St(r, s), "acquired", St(r, s).token))
  /\ net' = Tidy(net, sink, run')
  /\ UNCHANGED <<source, sink, lease, wishes>>

-----------------------------------------------------------------------------
(* Waves, one sink's part of them. What could not be read never becomes an order. *)

Order(r, s, kind, after, upto, leaves) ==
  [kind |-> kind, run |-> r, sink |-> s, epoch |-> St(r, s).epoch, token |-> St(r, s).token,
   after |-> after, upto |-> upto, answered |-> FALSE, stopped |-> {},
   tables |-> [t \in DOMAIN leaves |-> [expected |-> St(r, s).copies[t].durable, leaves |-> leaves[t]]]]

(* The wave's tables and the sink's slot are taken. D3: a copy is in one wave at most. *)
Begin(k, w, kind, tables, after, upto) ==
  [k EXCEPT !.waves[w] = [kind |-> kind, tables |-> tables, after |-> after, upto |-> upto],
            !.copies = [t \in Tables |-> IF "position_before_commit" \in Bugs /\ kind = "changes" /\ t \in tables
                                         THEN [@[t] EXCEPT !.at = upto] ELSE @[t]]]

Carried(k) == {t \in Tables : k.copies[t].status = "streaming" /\ t \notin wishes.paused /\ Free(k, t)}

(* Tables that could not be read of late wait for a while, or are tried alone: the others go without them. *)
Resting == IF "unread" \in Users THEN SUBSET Tables ELSE {{}}

(* All tables that stand at one place go together, but for those that rest. The window may end before the
   head, and ends where the sink's next tables stand, so that they meet and go on together. *)
Begins(r, s, place, upto, resting) ==
  LET k == St(r, s)
      tables == {t \in Carried(k) \ resting : k.copies[t].at = place}
      after == IF "read_across_gap" \in Bugs THEN Max(place, oldest) ELSE place
      leaves == [t \in tables |-> [k.copies[t].durable EXCEPT !.at = upto, !.hold = "none",
                                                              !.resumed = k.copies[t].resumed]]
      sent == {Order(r, s, "changes", after, upto, leaves)}
  IN /\ tables # {} /\ place < upto /\ upto <= run[r].head
     /\ \A t \in Carried(k) \ resting : k.copies[t].at > place => upto <= k.copies[t].at
     /\ Set(r, s, Begin(k, "changes", "changes", tables, place, upto))
     /\ IF after < oldest THEN net' = net
        ELSE IF \E t \in tables : Touches(hist, s, t, after, upto) THEN net' = net \cup sent
        ELSE net' = net \/ (SendEmpty /\ net' = net \cup sent)

StartWave(r, s) ==
  LET k == St(r, s) IN
  /\ k.phase = "ready" /\ Idle(k, "changes") /\ ~Outrun(k, run[r])
  /\ \E place \in {k.copies[t].at : t \in Carried(k)}, upto \in 1..Len(hist), resting \in Resting :
       Begins(r, s, place, upto, resting)
  /\ UNCHANGED <<source, sink, lease, wishes, faults>>

(* Pinned at the head, or where the copy stands that goes on from there, also while the sink's other tables go on.
   Tables rest that could not be read, or that the source cannot give whole yet. *)
Pin(r, c) == IF c.at = Unseeded THEN run[r].head ELSE c.at
Seeds(r, s, upto, resting) ==
  LET k == St(r, s)
      tables == {t \in Tables \ resting :
                   /\ k.copies[t].status = "unseeded" /\ t \notin wishes.paused /\ Free(k, t)
                   /\ Pin(r, k.copies[t]) = upto /\ k.copies[t].durable.at <= upto}
      leaves == [t \in tables |-> [at |-> upto, edition |-> k.copies[t].durable.edition + 1, hold |-> "none",
                                   resumed |-> k.copies[t].resumed, shape |-> t \in wishes.accepted]]
  IN /\ k.phase = "ready" /\ Idle(k, "seed") /\ tables # {} /\ ~Outrun(k, run[r])
     /\ Set(r, s, Begin(k, "seed", "replace", tables, upto, upto))
     /\ net' = IF upto < oldest /\ run[r].src = SrcOf(upto) THEN net   \* else it can be read, under a wrong number
                ELSE net \cup {Order(r, s, "replace", upto, upto, leaves)}

StartSeed(r, s) ==
  /\ \E resting \in Resting, upto \in {Pin(r, St(r, s).copies[t]) : t \in Tables} : Seeds(r, s, upto, resting)
  /\ UNCHANGED <<source, sink, lease, wishes, faults>>

(* Copies that were read further than they were written, or are held or resumed in memory only. *)
Differing(k) == {t \in Tables : /\ k.copies[t].status \in {"streaming", "held"} /\ Free(k, t)
                                /\ Memory(k.copies[t]) # k.copies[t].durable}
PersistIdle(r, s) ==
  LET k == St(r, s)
      tables == Differing(k)
      upto == MaxOf({k.copies[t].at : t \in tables})
      leaves == [t \in tables |-> Memory(k.copies[t])]
  IN /\ k.phase = "ready" /\ Idle(k, "changes") /\ tables # {} /\ ~Outrun(k, run[r])
     /\ Set(r, s, Begin(k, "changes", "persist", tables, upto, upto))
     /\ net' = net \cup {Order(r, s, "persist", upto, upto, leaves)}
     /\ UNCHANGED <<source, sink, lease, wishes, faults>>

(* An answer speaks of the copies that its order names, and of no others. *)
Ended(k, w) == [k EXCEPT !.waves[w] = NoWave]
WaveCommit(r, s) ==
  LET k == St(r, s) IN
  /\ k.phase = "ready"
  /\ \E o \in net :
       /\ o.kind # "takeover" /\ o.answered /\ Mine(r, s, o) /\ k.waves[SlotOf(o)] # NoWave
       /\ Set(r, s, Gaps([Ended(k, SlotOf(o)) EXCEPT !.copies =
                            [t \in Tables |-> IF t \in DOMAIN o.tables THEN CopyAt(t, Left(o, t, o.stopped)) ELSE @[t]]],
                         run[r]))
       /\ net' = Tidy(net \ {o}, sink, run')
  /\ UNCHANGED <<source, sink, lease, wishes, faults>>

(* The answer is a refusal, an error, late or lost: the order may have committed, so all is forgotten
   and the versions are read again. *)
WaveFail(r, s) ==
  LET k == St(r, s)
      place(t, to) == IF to = "begin" THEN k.copies[t].durable.at
                      ELSE IF t \in k.waves["changes"].tables THEN k.waves["changes"].upto
                      ELSE k.copies[t].at
      back(to) == [k EXCEPT !.epoch = @ + 1, !.waves = [w \in Slots |-> NoWave],
                            !.copies = [t \in Tables |-> IF @[t].status # "streaming" THEN @[t]
                                                         ELSE [@[t] EXCEPT !.at = place(t, to)]]]
  IN /\ k.phase = "ready"
     /\ \E w \in Slots : /\ k.waves[w] # NoWave
                         /\ IF Doomed(r, s, w) THEN UNCHANGED faults ELSE Fault
     /\ Set(r, s, IF "missing_reset" \in Bugs THEN back("end")
                  ELSE IF "no_recovery" \in Bugs THEN [back("begin") EXCEPT !.epoch = k.epoch]
                  ELSE Reset(k, "acquired", k.token))
     /\ net' = Tidy(net, sink, run')
     /\ UNCHANGED <<source, sink, lease, wishes>>

(* A copy that was to be read again at its own place, and could not, goes on as before: the request is taken up
   another time. *)
Untaken(k, w) ==
  [t \in Tables |-> LET c == k.copies[t] IN
     IF t \in k.waves[w].tables /\ c.status = "unseeded" /\ c.at # Unseeded
     THEN [c EXCEPT !.status = "streaming", !.resumed = c.durable.resumed]
     ELSE c]

(* The window could not be read, for it is gone, or some table of it cannot be read now. So no order was
   sent (one that nobody has answered is taken out of the network again: it never was there), and the copies
   are where they were. *)
WaveAbort(r, s) ==
  LET k == St(r, s)
      back(w) == IF "abort_advances" \in Bugs
                 THEN [t \in Tables |-> IF t \in k.waves[w].tables THEN [k.copies[t] EXCEPT !.at = k.waves[w].upto]
                                        ELSE k.copies[t]]
                 ELSE Untaken(k, w)
  IN /\ k.phase = "ready"
     /\ \E w \in Slots : LET asked == {o \in net : Asked(r, s, w, o)} IN
          /\ k.waves[w] # NoWave
          /\ \/ asked = {} /\ k.waves[w].after < oldest /\ UNCHANGED faults
             \/ /\ "unread" \in Users /\ k.waves[w].kind # "persist"
                /\ \A o \in asked : ~o.answered
                /\ Fault
          /\ Set(r, s, Gaps([Ended(k, w) EXCEPT !.copies = back(w)], run[r]))
          /\ net' = net \ asked
     /\ UNCHANGED <<source, sink, lease, wishes>>

(* Nothing in the window was for this sink: its copies move on without a commit. *)
Advance(r, s) ==
  LET k == St(r, s)
      wave == k.waves["changes"]
  IN /\ k.phase = "ready" /\ wave.kind = "changes"
     /\ ~\E o \in net : Asked(r, s, "changes", o)
     /\ (\A t \in wave.tables : ~Touches(hist, s, t, wave.after, wave.upto)) \/ "advance_unread" \in Bugs
     /\ Set(r, s, Gaps([Ended(k, "changes") EXCEPT !.copies =
                          [t \in Tables |-> IF t \in wave.tables THEN [@[t] EXCEPT !.at = wave.upto] ELSE @[t]]],
                       run[r]))
     /\ UNCHANGED <<source, sink, lease, net, wishes, faults>>

-----------------------------------------------------------------------------
Next ==
  \/ SrcCommit \/ Expire \/ StoreLost
  \/ \E s \in Sinks : LeaseOut(s)
  \/ \E t \in Tables : PauseTable(t) \/ UnpauseTable(t) \/ Accept(t)
  \/ \E s \in Sinks, t \in Tables : AskResume(s, t) \/ AskAgain(s, t)
  \/ SinkTakeover \/ SinkCommit
  \/ \E r \in Runners :
       \/ Observe(r) \/ ObserveLate(r) \/ Heard(r) \/ Crash(r)
       \/ \E s \in Sinks :
            \/ Acquire(r, s) \/ Lose(r, s) \/ StartRecovery(r, s) \/ Recovered(r, s) \/ RecoveryFail(r, s)
            \/ StartWave(r, s) \/ StartSeed(r, s) \/ PersistIdle(r, s)
            \/ WaveCommit(r, s) \/ WaveFail(r, s) \/ WaveAbort(r, s) \/ Advance(r, s)
            \/ LostHistory(r, s) \/ ResumeTable(r, s) \/ CopyAgain(r, s) \/ Answer(r, s)

Spec == Init /\ [][Next]_vars

(* Fairness: whoever can go on does. Faults never have to happen, and there are finitely many. What differs
   in memory only need not be written, but for what a user waits for. *)
Executes == \E o \in net : o.run # Nobody /\ (TakesOver(o) \/ (Commits(o) /\ faults' = faults))
Awaited(r, s) == \E t \in Differing(St(r, s)) : St(r, s).copies[t].resumed # St(r, s).copies[t].durable.resumed
FairSpec ==
  /\ Spec /\ WF_vars(SrcCommit) /\ WF_vars(Executes)
  /\ \A r \in Runners :
       /\ WF_vars(Observe(r)) /\ WF_vars(Heard(r))
       /\ \A s \in Sinks :
            /\ WF_vars(Acquire(r, s)) /\ WF_vars(Lose(r, s)) /\ WF_vars(StartRecovery(r, s))
            /\ WF_vars(Recovered(r, s))
            /\ WF_vars(StartWave(r, s)) /\ WF_vars(StartSeed(r, s)) /\ SF_vars(Awaited(r, s) /\ PersistIdle(r, s))
            /\ WF_vars(WaveCommit(r, s)) /\ WF_vars(WaveFail(r, s) /\ faults' = faults)
            /\ WF_vars(WaveAbort(r, s) /\ faults' = faults) /\ WF_vars(Advance(r, s))
            /\ SF_vars(ResumeTable(r, s)) /\ SF_vars(CopyAgain(r, s)) /\ WF_vars(Answer(r, s))

-----------------------------------------------------------------------------
(* What must hold. *)

Data(s, t) == sink[s].copies[t].data
Here(s, t) == Version(s, t).at # Unseeded
Current(s, t) == Version(s, t).at = head
Truth(s, t, i) == Share(hist, s, t, i)
Copies == Sinks \X Tables

TypeOK ==
  /\ oldest \in 0..head /\ head \in 0..Len(hist)
  /\ \A c \in Copies : /\ Version(c[1], c[2]).at \in Unseeded..Len(hist)
                       /\ Version(c[1], c[2]).hold \in {"none", "fault", "gap"}
  /\ \A s \in Sinks : lease[s].holder \in Runners \cup {Nobody}
  /\ \A r \in Runners, s \in Sinks : LET k == St(r, s) IN
       /\ k.phase \in {"unowned", "acquired", "recovering", "ready"}
       /\ \A t \in Tables : /\ k.copies[t].status \in {"none", "streaming", "unseeded", "held"}
                            /\ (k.copies[t].status = "none") <=> (k.phase # "ready")
                            /\ (k.copies[t].status = "held") <=> (k.copies[t].hold # "none")

NoDuplicate ==
  \A c \in Copies : Here(c[1], c[2]) =>
    \A k \in KeysOf(c[2]) : Data(c[1], c[2])[<<k, 1>>] + Data(c[1], c[2])[<<k, 2>>] <= 1

PartitionCorrectness ==
  \A c \in Copies : Here(c[1], c[2]) =>
    \A k \in KeysOf(c[2]), v \in Vals :
      Data(c[1], c[2])[<<k, v>>] > 0 => RowsAt(hist, Version(c[1], c[2]).at)[k].route \in {c[1], "none"}

NoPhantomWhenCurrent ==
  \A c \in Copies : Current(c[1], c[2]) =>
    \A kv \in KeysOf(c[2]) \X Vals : Data(c[1], c[2])[kv] <= Truth(c[1], c[2], head)[kv]
NoDataLossWhenCurrent ==
  \A c \in Copies : Current(c[1], c[2]) =>
    \A kv \in KeysOf(c[2]) \X Vals : Data(c[1], c[2])[kv] >= Truth(c[1], c[2], head)[kv]
EventualConsistency ==
  (\A c \in Copies : Current(c[1], c[2])) => \A c \in Copies : Data(c[1], c[2]) = Truth(c[1], c[2], head)

(* The content of each copy is the source's at exactly one position: its own place. *)
TransactionNeverSplit ==
  \A c \in Copies : Here(c[1], c[2]) => Data(c[1], c[2]) = Truth(c[1], c[2], Version(c[1], c[2]).at)

(* A copy that says it follows the settings was made by them, and changes are read by them for no other. *)
ShapeTrue ==
  /\ \A c \in Copies : Version(c[1], c[2]).shape = sink[c[1]].copies[c[2]].made
  /\ \A r \in Runners, c \in Copies : LET k == St(r, c[1]).copies[c[2]] IN
       k.status = "streaming" => Shaped(c[2], k.durable)

(* What a runner believes durable was durable; what it has read exists, and was nothing to this copy. *)
BufferPositionBound ==
  \A r \in Runners, s \in Sinks, t \in Tables :
    LET k == St(r, s)
        c == k.copies[t]
        v == Version(s, t)
    IN k.phase = "ready" =>
         /\ c.durable.at <= v.at /\ c.durable.edition <= v.edition /\ c.durable.resumed <= v.resumed
         /\ v.at <= head
         /\ c.status = "streaming" => /\ c.durable.at <= c.at /\ c.at <= head
                                      /\ ~Touches(hist, s, t, c.durable.at, c.at)

(* A copy is in one wave at most, and of a sink's waves one carries changes and one seeds; nobody applies
   before the fence was raised; nothing of this epoch can change a copy that is in no wave. *)
Flying(r, s, t) == {o \in net : IF o.kind = "takeover" THEN FALSE
                              ELSE /\ o.run = r /\ o.sink = s /\ o.epoch = St(r, s).epoch
                                   /\ t \in DOMAIN o.tables /\ ~o.answered /\ ~Hopeless(o)}
FlushStateConsistency ==
  \A r \in Runners, s \in Sinks : LET k == St(r, s) IN
    /\ k.waves["changes"].tables \cap k.waves["seed"].tables = {}
    /\ k.phase = "ready" => k.token > 0 /\ k.token <= sink[s].token
    /\ k.phase # "ready" => k.waves = Unowned.waves
    /\ \A t \in Tables : Cardinality(Flying(r, s, t)) <= (IF InWave(k, t) THEN 1 ELSE 0)

(* Whoever believes to own a sink, awake or not, has a token of its own. *)
OwnersDiffer ==
  \A s \in Sinks : \A p, q \in Runners :
    (p # q /\ St(p, s).token > 0) => St(p, s).token # St(q, s).token

(* Who is taken to have caught up stands in the history that was looked at, under its own number. *)
CaughtUpIsTrue ==
  \A r \in Runners, s \in Sinks, t \in Tables : LET c == St(r, s).copies[t] IN
    (St(r, s).phase = "ready" /\ c.status = "streaming" /\ c.at >= run[r].head /\ ~Outrun(St(r, s), run[r])) =>
      run[r].src = SrcOf(run[r].head) /\ GenOf(c.at) = GenOf(run[r].head)

Grows(v, w) ==
  /\ w.edition >= v.edition /\ w.at >= v.at /\ w.resumed >= v.resumed
  /\ (v.hold # "none" /\ w.hold # v.hold) => (w.edition > v.edition \/ w.resumed > v.resumed)
CursorMonotonicity == [][\A c \in Copies : Grows(Version(c[1], c[2]), sink'[c[1]].copies[c[2]].v)]_vars
TokenMonotonicity == [][\A s \in Sinks : sink'[s].token >= sink[s].token]_vars

(* Whatever changes a copy is an order that bears the sink's token and names the copy. *)
FencedWriteHasNoEffect ==
  [][\A c \in Copies : sink'[c[1]].copies[c[2]] # sink[c[1]].copies[c[2]] =>
       \E o \in net : /\ o.kind # "takeover" /\ o.sink = c[1] /\ o.token = sink[c[1]].token
                      /\ c[2] \in DOMAIN o.tables]_vars

(* A request to resume is kept until the sink's own copy shows it. *)
RequestKept ==
  [][\A c \in Copies : (wishes.asked[c[1]][c[2]] > 0 /\ wishes'.asked[c[1]][c[2]] = 0) =>
       Version(c[1], c[2]).resumed >= wishes.asked[c[1]][c[2]]]_vars

(* A request to read a table again is answered by a copy that was made since, or by its hold. *)
AgainIsRead ==
  [][\A c \in Copies : (wishes.again[c[1]][c[2]] > 0 /\ wishes'.again[c[1]][c[2]] = 0) =>
       Version(c[1], c[2]).edition >= wishes.again[c[1]][c[2]] \/ Version(c[1], c[2]).hold # "none"]_vars

(* In the end every copy is the source's, and has an owner that knows, unless it is paused or held. *)
Settled(s, t) == \E r \in Runners : LET c == St(r, s).copies[t] IN
  /\ St(r, s).phase = "ready"
  /\ \/ c.status = "streaming" /\ c.at = Len(hist)
     \/ c.status = "held" \/ t \in wishes.paused
EveryCopyBecomesCurrent ==
  <>[](\A c \in Copies : /\ Settled(c[1], c[2])
                         /\ c[2] \in wishes.paused \/ Version(c[1], c[2]).hold # "none"
                            \/ Data(c[1], c[2]) = Truth(c[1], c[2], Len(hist)))
EveryRequestIsAnswered ==
  \A c \in Copies : wishes.asked[c[1]][c[2]] > 0 ~> (wishes.asked[c[1]][c[2]] = 0 \/ c[2] \in wishes.paused)
=============================================================================
