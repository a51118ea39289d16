/* How operations fail: epochs of places (decision D18), as the engine keeps them (scheduler/run/match_queue.cpp,
 * scheduler/run/graph.cpp).
 *
 * A place is where operations of a group match: a (group, lane), all that the group runs directly, or a pair of
 * ranks. Two ranks have one program of STEPS operations. A rank submits those of a lane in their order, and those
 * of different lanes in any order. It sees that a lane has failed, resets it, and submits again what did not
 * succeed there.
 *
 *   client      rings       engine
 *   start   ->          ->  is stamped with the epoch in which the rank stands at that place, and with its number;
 *                           next on its lane, it waits for the other rank; if its epoch has ended, its lane fails
 *   reset   ->          ->  the rank moves on where that lane failed or dropped an operation, and wherever the
 *                           same fault has ended its epoch
 *
 * An operation that its lane drops ends its place with the fault behind it, once for each fault. If the place has
 * ended by that fault before, the operation gives its number back instead: its peers wait for the next one.
 *
 * Faults, FAULTS of them, each at any moment: an abort ends all places of a group; a deadline ends the place at
 * which a rank waits; a loss ends all places of rank 1, which attaches again.
 *
 * Programs, one a search:
 *   PROGRAM=1  two groups on lane 0 by turns, one of them also on lane 1, where an operation waits for one of
 *              lane 0
 *   PROGRAM=2  messages of one pair on both lanes, matched by tag, around collectives
 *   PROGRAM=3  runs, in which the client waits itself, between starts
 * With -DLATE rank 1 attaches for the first time at any moment, also after faults.
 *
 * Properties:
 *   1  operations that match are the same step of both programs, and stand in the same epoch
 *   2  all steps succeed in the end: no state in which a rank waits for ever
 *   3  a place has at most FAULTS + 1 epochs: ranks do not end each other's work for ever
 *   4  the rank that stayed hears of a loss; a rank that is back hears of no end from before it attached
 *   5  a rank that attaches for the first time hears of each fault since the run began, whatever it was
 *
 * Planted bugs, each of which must be found:
 *   -DBUG_DROP_IS_SILENT    an operation that its lane drops ends nothing: its peer waits
 *   -DBUG_DROP_ENDS_AGAIN   it ends the present epoch, whichever it carries
 *   -DBUG_ENDS_TWICE        it ends its place also if that has ended by the same fault before
 *   -DBUG_STAMPED_LATE      an operation is stamped when it is next on its lane, not when it is read
 *   -DBUG_NUMBERS_GO_ON     numbers do not begin again with an epoch
 *   -DBUG_SKIPS_A_LOSS      a reset moves to the present epoch, also past one that a loss has ended
 *   -DBUG_ATTACHES_BEHIND   a rank that attaches stands where the former client stood
 *   -DBUG_JOINS_THE_PRESENT with LATE: a rank that attaches for the first time stands in the present epoch
 *   -DBUG_LATE_HEARS_ONE    with LATE: it moves past all ends once it has heard of one
 */
#ifndef PROGRAM
#define PROGRAM 1
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#define EPOCHS (FAULTS + 1)
#ifndef AHEAD
#define AHEAD 2  /* starts of a lane that are submitted and not over */
#endif
#define RANKS 2

#if PROGRAM == 1
#define STEPS 6
#define PLACES 3
#define LANES 2
#define place_of(s) ((s) % 3)                /* A on lane 0, B on lane 0, A on lane 1 */
#define lane_of(r, s) ((s) % 3 == 2 -> 1 : 0)
#define of_a(x) ((x) != 1)
#define NEEDS_FIRST 5
#define NEEDS 3
#elif PROGRAM == 2
#define STEPS 4
#define PLACES 2
#define LANES 2
#define place_of(s) ((s) % 2)                /* the pair, A on lane 0 */
#define lane_of(r, s) ((s) == 0 -> (r) : ((s) == 2 -> 1 - (r) : 0))
#define of_a(x) ((x) < 2)
#define PAIR 0
#elif PROGRAM == 3
#define STEPS 4
#define PLACES 2
#define LANES 2
#define place_of(s) ((s) % 2)                /* A on lane 0, what A runs */
#define lane_of(r, s) ((s) % 2)              /* the run in which the client is counts as lane 1 */
#define of_a(x) ((x) < 2)
#define RUNS 1
#endif

#define at(r, x) ((r) * PLACES + (x))
#define on(r, l) ((r) * LANES + (l))
#define of(r, s) ((r) * STEPS + (s))
#define RESET STEPS  /* of a command: a step to start, or RESET + lane */

/* ---- the program ---- */
bool submitted[RANKS * STEPS];
bool done[RANKS * STEPS];
bool resetting[RANKS * LANES];         /* the client has asked for it */
byte behind[RANKS * LANES];            /* starts that are submitted and not over */
chan ring[RANKS] = [2] of { byte };

/* ---- the engine ---- */
chan lane[RANKS * LANES] = [AHEAD] of { byte, byte, byte };  /* step, epoch, number */
bool waits[RANKS * LANES];             /* its head waits for the other rank */
byte failed[RANKS * LANES];            /* the fault because of which it stands still; 0: it runs */
bool dropped[RANKS * PLACES];          /* the lane that stands still failed or dropped an operation there */
byte epoch[PLACES];
byte cause[PLACES * EPOCHS];           /* the fault that ended it */
bool by_loss[PLACES * EPOCHS];
byte stands[RANKS * PLACES];
byte number[RANKS * PLACES];

byte faults = 0;
byte lost = 0;                         /* the fault that was a loss */
bool heard = false;                    /* rank 0, of the loss */
byte born[RANKS * PLACES];             /* the epoch in which the client attached */
bool late[RANKS * PLACES];             /* it attached for the first time, and has not caught up */
#ifdef LATE
bool came = false;                     /* rank 1 */
byte before = 0;                       /* faults when it came; 0 once it has another client */
bool told[FAULTS + 1];                 /* rank 1, of that fault */
#else
#define came true
#endif

hidden byte s, e, n, q, f, m, r1, l1, i;
hidden byte more;

inline end_epoch(x, why, loss) {
  assert(epoch[x] + 1 < EPOCHS);
  cause[(x) * EPOCHS + epoch[x]] = why;
  by_loss[(x) * EPOCHS + epoch[x]] = loss;
  epoch[x]++
}

/* Step s, which carries epoch e, will not be launched. */
inline drop(r, why) {
  dropped[at(r, place_of(s))] = true;
  behind[on(r, lane_of(r, s))]--;
#ifndef BUG_DROP_IS_SILENT
  if
#ifdef BUG_DROP_ENDS_AGAIN
  :: true -> end_epoch(place_of(s), why, false)
#else
  :: e < epoch[place_of(s)] -> skip
  :: e == epoch[place_of(s)] ->
     i = 0;
#ifndef BUG_ENDS_TWICE
     do
     :: i < epoch[place_of(s)] && cause[place_of(s) * EPOCHS + i] != why -> i++
     :: else -> break
     od;
     if
     :: i == epoch[place_of(s)] -> end_epoch(place_of(s), why, false)
     :: else ->
        if
        :: n < number[at(r, place_of(s))] -> number[at(r, place_of(s))] = n
        :: else -> skip
        fi
     fi
#else
     end_epoch(place_of(s), why, false)
#endif
#endif
  fi
#endif
}

inline stop(r, l, why) {
  failed[on(r, l)] = why;
  waits[on(r, l)] = false;
  if
  :: r == 0 && why == lost && lost > 0 -> heard = true
#ifdef LATE
  :: r == 1 -> told[why] = true
#endif
  :: else -> skip
  fi;
  do
  :: nempty(lane[on(r, l)]) -> lane[on(r, l)]?s, e, n; drop(r, failed[on(r, l)])
  :: empty(lane[on(r, l)]) -> break
  od
}

/* The head of a lane. */
inline advance(r, l) {
  if
  :: nempty(lane[on(r, l)]) && !waits[on(r, l)] ->
     lane[on(r, l)]?<s, e, n>;
#ifdef BUG_STAMPED_LATE
     e = stands[at(r, place_of(s))];
#endif
     if
#ifdef NEEDS
     :: s == NEEDS_FIRST && !done[of(r, NEEDS)] && failed[on(r, 0)] != 0 -> stop(r, l, failed[on(r, 0)]); more = true
     :: s == NEEDS_FIRST && !done[of(r, NEEDS)] && failed[on(r, 0)] == 0 -> skip
#endif
     :: else ->
        if
        :: e == epoch[place_of(s)] -> waits[on(r, l)] = true; more = true
        :: e < epoch[place_of(s)] ->
           assert(e >= born[at(r, place_of(s))]);
           stop(r, l, cause[place_of(s) * EPOCHS + e]);
           more = true
        fi
     fi
  :: nempty(lane[on(r, l)]) && waits[on(r, l)] ->  /* its place may have ended */
     lane[on(r, l)]?<s, e, n>;
     if
#ifndef BUG_STAMPED_LATE
     :: e < epoch[place_of(s)] -> stop(r, l, cause[place_of(s) * EPOCHS + e]); more = true
#endif
     :: else -> skip
     fi
  :: empty(lane[on(r, l)]) -> skip
  fi
}

#ifdef PAIR
#define has_tag(k) (place_of(k) == PAIR)
#else
#define has_tag(k) false
#endif
#define same_tag (!has_tag(s) || n == m)

/* Two heads that wait: the same operation, or of other places or tags. */
inline match(l, k) {
  if
  :: waits[on(0, l)] && waits[on(1, k)] ->
     lane[on(0, l)]?<s, e, n>;
     lane[on(1, k)]?<q, f, m>;
     if
     :: place_of(s) == place_of(q) && same_tag ->
        assert(e == f && n == m && s == q);
        lane[on(0, l)]?s, e, n;
        lane[on(1, k)]?q, f, m;
        waits[on(0, l)] = false;
        waits[on(1, k)] = false;
        behind[on(0, l)]--;
        behind[on(1, k)]--;
        done[of(0, s)] = true;
        done[of(1, s)] = true;
        more = true
     :: else -> skip
     fi
  :: else -> skip
  fi
}

inline settle() {
  more = true;
  do
  :: more ->
     more = false;
     advance(0, 0);
     advance(0, 1);
     advance(1, 0);
     advance(1, 1);
     match(0, 0);
     match(1, 1);
#ifdef PAIR
     match(0, 1);
     match(1, 0)
#endif
  :: else -> break
  od
}

#ifdef BUG_LATE_HEARS_ONE
#define catches_up(r, x) false
#else
#define catches_up(r, x) late[at(r, x)]
#endif

/* Past every end but that by a loss of which the rank has not heard: to that one, or to the present epoch. A
 * rank that came late moves past one end. */
inline move_on(r, x, why) {
  i = stands[at(r, x)];
  do
  :: i >= epoch[x] -> break
  :: i < epoch[x] && catches_up(r, x) -> i++; break
#ifndef BUG_SKIPS_A_LOSS
  :: i < epoch[x] && !catches_up(r, x) && by_loss[(x) * EPOCHS + i] && cause[(x) * EPOCHS + i] != why -> break
  :: i < epoch[x] && !catches_up(r, x) && !(by_loss[(x) * EPOCHS + i] && cause[(x) * EPOCHS + i] != why) -> i++
#else
  :: i < epoch[x] && !catches_up(r, x) -> i++
#endif
  od;
  late[at(r, x)] = late[at(r, x)] && i < epoch[x];
  if
  :: i > stands[at(r, x)] ->
     stands[at(r, x)] = i;
#ifndef BUG_NUMBERS_GO_ON
     number[at(r, x)] = 0
#endif
  :: else -> skip
  fi
}

#ifdef PAIR  /* the place of both lanes */
#define is_of(x, l) ((x) == PAIR || (l) == 0)
#elif defined(RUNS)
#define is_of(x, l) ((x) == (l))
#else
#define is_of(x, l) (((x) == 2) == ((l) == 1))
#endif

/* Where the lane failed or dropped an operation, and wherever its fault has ended the epoch of the rank, or a later
 * one if the rank has caught up. */
inline reset(r, l) {
  q = 0;
  do
  :: q < PLACES ->
     m = stands[at(r, q)];
     do
     :: m < epoch[q] && cause[q * EPOCHS + m] != failed[on(r, l)] -> m = (catches_up(r, q) -> epoch[q] : m + 1)
     :: else -> break
     od;
     if
     :: (dropped[at(r, q)] && is_of(q, l)) -> move_on(r, q, failed[on(r, l)]); dropped[at(r, q)] = false
     :: !(dropped[at(r, q)] && is_of(q, l)) && m < epoch[q] -> move_on(r, q, failed[on(r, l)])
     :: else -> skip
     fi;
     q++
  :: else -> break
  od;
  failed[on(r, l)] = 0;
  resetting[on(r, l)] = false
}

inline put(r, l) {  /* step s */
  e = stands[at(r, place_of(s))];
  n = (has_tag(s) -> s : number[at(r, place_of(s))]);
  number[at(r, place_of(s))]++;
  if
  :: failed[on(r, l)] != 0 -> drop(r, failed[on(r, l)])
  :: else -> lane[on(r, l)]!s, e, n
  fi
}

inline clear() {
  s = 0; e = 0; n = 0; q = 0; f = 0; m = 0; r1 = 0; l1 = 0; i = 0; more = false
}

inline read(r) {
  ring[r]?s;
  if
  :: s >= RESET -> reset(r, s - RESET)
  :: else -> l1 = lane_of(r, s); put(r, l1)
  fi;
  settle();
  clear()
}

proctype engine() {
end:
  do
  :: atomic { nempty(ring[0]) -> read(0) }
  :: atomic { nempty(ring[1]) -> read(1) }
  od
}

/* ---- faults ---- */
inline lose(r) {
  do
  :: nempty(ring[r]) -> ring[r]?s
  :: empty(ring[r]) -> break
  od;
  l1 = 0;
  do
  :: l1 < LANES ->
     do
     :: nempty(lane[on(r, l1)]) -> lane[on(r, l1)]?s, e, n
     :: empty(lane[on(r, l1)]) -> break
     od;
     waits[on(r, l1)] = false;
     failed[on(r, l1)] = 0;
     resetting[on(r, l1)] = false;
     behind[on(r, l1)] = 0;
     l1++
  :: else -> break
  od;
  q = 0;
  do
  :: q < PLACES -> end_epoch(q, faults, true); q++
  :: else -> break
  od;
  q = 0;
  do
  :: q < PLACES ->
#ifndef BUG_ATTACHES_BEHIND
     stands[at(r, q)] = epoch[q];
#endif
     born[at(r, q)] = epoch[q];
     late[at(r, q)] = false;
     number[at(r, q)] = 0;
     dropped[at(r, q)] = false;
     q++
  :: else -> break
  od;
#ifdef LATE
  before = 0;
#endif
  q = 0;
  do
  :: q < STEPS -> submitted[of(r, q)] = done[of(r, q)]; q++
  :: else -> break
  od
}

#ifdef LATE
/* Rank 1 attaches for the first time: it stands where the run began. */
proctype newcomer() {
  atomic {
    do
    :: q < PLACES ->
#ifdef BUG_JOINS_THE_PRESENT
       stands[at(1, q)] = epoch[q];
       born[at(1, q)] = epoch[q];
#else
       late[at(1, q)] = epoch[q] > 0;
#endif
       q++
    :: else -> break
    od;
    before = faults;
    came = true;
    clear()
  }
}
#endif

inline abort_group(a) {
  q = 0;
  do
  :: q < PLACES ->
     if
     :: of_a(q) == a -> end_epoch(q, faults, false)
     :: else -> skip
     fi;
     q++
  :: else -> break
  od
}

#define has_done(r, k) done[of(r, k)]
#if STEPS == 6
#define all_done(r) (has_done(r, 0) && has_done(r, 1) && has_done(r, 2) && has_done(r, 3) && has_done(r, 4) && has_done(r, 5))
#else
#define all_done(r) (has_done(r, 0) && has_done(r, 1) && has_done(r, 2) && has_done(r, 3))
#endif
#define over all_done(0)

proctype fault() {
end:
  do
  :: atomic { faults < FAULTS && !over ->
     faults++;
     if
     :: abort_group(true)
#if PROGRAM == 1
     :: abort_group(false)
#endif
     :: waits[on(0, 0)] -> lane[on(0, 0)]?<s, e, n>; end_epoch(place_of(s), faults, false)
     :: waits[on(1, 1)] -> lane[on(1, 1)]?<s, e, n>; end_epoch(place_of(s), faults, false)
     :: lost == 0 && came -> lost = faults; lose(1)
     fi;
     settle();
     clear() }
  od
}

/* ---- clients ---- */
inline forget(r, l) {  /* what did not succeed on that lane is submitted again */
  q = 0;
  do
  :: q < STEPS ->
     if
     :: lane_of(r, q) == l -> submitted[of(r, q)] = done[of(r, q)]
     :: else -> skip
     fi;
     q++
  :: else -> break
  od
}

#ifdef RUNS
#define is_run(k) (lane_of(0, k) == RUNS)
#define acts(r) (behind[on(r, RUNS)] == 0 && failed[on(r, RUNS)] == 0)  /* not inside a run */
#define turn(r, k) ((k) == 0 || submitted[of(r, (k) - 1)])
#else
#define is_run(k) false
#define acts(r) true
#define turn(r, k) true
#endif
#ifdef NEEDS
#define has_what_it_needs(r, k) ((k) != NEEDS_FIRST || (submitted[of(r, NEEDS)] && failed[on(r, 0)] == 0))
#else
#define has_what_it_needs(r, k) true
#endif
#define after(r, q, k) ((q) >= (k) || submitted[of(r, q)] || lane_of(r, q) != lane_of(r, k))
#define in_order(r, k) (after(r, 0, k) && after(r, 1, k) && after(r, 2, k) && after(r, 3, k) && after(r, 4, k))
#define may_submit(r, k) \
  (nfull(ring[r]) && acts(r) && !submitted[of(r, k)] && behind[on(r, lane_of(r, k))] < AHEAD && turn(r, k) && \
   in_order(r, k) && has_what_it_needs(r, k))

inline submit(r, k) {
  submitted[of(r, k)] = true;
  behind[on(r, lane_of(r, k))]++;
  if
  :: is_run(k) -> s = k; put(r, 1); settle(); clear()
  :: !is_run(k) -> ring[r]!k
  fi
}

#define sees_failure(r, l) (failed[on(r, l)] != 0 && !resetting[on(r, l)] && nfull(ring[r]))

proctype client(byte r) {
  r == 0 || came;
  do
  :: atomic { sees_failure(r, 0) && acts(r) -> resetting[on(r, 0)] = true; ring[r]!RESET; forget(r, 0); clear() }
#ifdef RUNS
  :: atomic { failed[on(r, RUNS)] != 0 -> forget(r, RUNS); reset(r, RUNS); settle(); clear() }
#else
  :: atomic { sees_failure(r, 1) -> resetting[on(r, 1)] = true; ring[r]!RESET + 1; forget(r, 1); clear() }
#endif
  :: atomic { may_submit(r, 0) -> submit(r, 0) }
  :: atomic { may_submit(r, 1) -> submit(r, 1) }
  :: atomic { may_submit(r, 2) -> submit(r, 2) }
  :: atomic { may_submit(r, 3) -> submit(r, 3) }
#if STEPS == 6
  :: atomic { may_submit(r, 4) -> submit(r, 4) }
  :: atomic { may_submit(r, 5) -> submit(r, 5) }
#endif
  :: all_done(r) -> break
  od
}

init {
  atomic {
    i = 0;
    do
    :: i < RANKS * LANES -> failed[i] = 0; i++
    :: else -> break
    od;
    i = 0;
    run engine();
    run fault();
    run client(0);
    run client(1);
#ifdef LATE
    run newcomer()
#endif
  }
  timeout;
#ifdef LATE
  i = 1;
  do
  :: i <= before -> assert(told[i]); i++
  :: else -> break
  od;
#endif
  assert(all_done(0) && all_done(1));
  assert(lost == 0 || heard)
}
