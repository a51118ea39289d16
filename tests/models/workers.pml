/* The engine's workers: who sleeps where, and who is rung (kernels/device/host/crew.cpp and queues.cpp,
 * daemon/engine/job/engine.cpp, api/shm/ring.hpp). Sequentially consistent.
 *
 * A worker that finds nothing arms duty (Crew::announce, Engine::arm: each ring's nap, then a look at its
 * tail), lies down (Crew::rest) as the sentinel inside the doorbells' wait, or on its own bell if there is a
 * sentinel. A client pushes, then looks at the nap and rings the doorbell once a nap. A turn of duty is for one
 * worker at a time, who is on duty; it makes a task of a command. The conductor, no worker, launches a task too.
 *
 * Who issues takes no lock (Queues::push): an entry on the stream, the stream among the arrivals, then a look at
 * how many look (Crew::nobody_comes). If nobody does, he takes the lock and the arrivals in himself (Crew::come).
 * A worker that takes a part or lies down leaves those who look, then looks at the arrivals. Whoever has taken
 * something in rings as many sleepers as nobody awake will come for (Crew::plan).
 *
 * Property: every command is drained once and every part that was issued run once; there is no state in which
 * all wait although there is work. One part at a time may last until all others that were issued have been run:
 * so nobody sleeps beside work that a busy worker would have to come for. Left out: the sentinel's nap of 100 ms
 * and the clients', since nothing may depend on them; full streams, records, waits, priorities, stop().
 *
 * Within the lock, a step does one thing that others see without it. Who could find work may overlook it, since
 * Queues::any_ready is a hint, and since a turn of duty may be due first.
 *
 * Bounds: WORKERS workers, one client, COMMANDS commands of DUTY_PARTS parts each, all on one stream; LAUNCHES
 * of the conductor, of CONDUCTOR_PARTS parts each, on another.
 *
 * Planted bugs, each of which must be found:
 *   -DBUG_ARM_WITHOUT_LOOK    no look at the tail once the ring's nap is announced
 *   -DBUG_LOOK_BEFORE_PUSH    the client looks at the nap, then publishes the tail
 *   -DBUG_TWO_ON_DUTY         a turn of duty is not for one at a time
 *   -DBUG_ARM_UNGUARDED_ONLY  a worker arms duty only if there is no sentinel yet
 *   -DBUG_LIES_DOWN           a worker that cannot arm because another is on duty leaves it to that one
 *   -DBUG_REST_LOOKS_FIRST    who lies down looks at the arrivals, then leaves those who look
 *   -DBUG_TAKE_LOOKS_FIRST    who takes a part takes the arrivals in, then leaves those who look
 *   -DBUG_COUNT_FIRST         who issues looks at the count, then puts the stream among the arrivals
 *   -DBUG_NOBODY_RUNG         who takes a part rings nobody for the others
 *   -DBUG_SAYS_SO_LATE        who takes a stream in looks at its entries, then says that it is no arrival:
 *                             with -DCOMMANDS=0 -DLAUNCHES=3, since it takes three on one stream
 */
#ifndef COMMANDS
#define COMMANDS 2
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef LAUNCHES
#define LAUNCHES 1
#endif
#ifndef DUTY_PARTS
#define DUTY_PARTS 1
#endif
#ifndef CONDUCTOR_PARTS
#define CONDUCTOR_PARTS 2
#endif
#define NOBODY 255
#define DUTY 0
#define CONDUCTOR 1
#define parts(s) ((s) == DUTY -> DUTY_PARTS : CONDUCTOR_PARTS)
#define bit(s) ((s) + 1)

byte tail = 0;      /* client */
bool nap = 0;       /* reader: not awake. The nap's number stands for this: */
bool nap_rung = 0;  /* the client has rung for this very nap */
byte cursor = 0;    /* RingReader::cursor_ */
bool edge = 0;      /* the eventfds in the epoll set: rung since the last wait */
bool armed = 0;     /* Engine::armed_, of who is on duty */
bool on_duty = 0;   /* Crew::on_duty_ */
bool lock = 0;      /* Crew::lock_ */
byte looking = WORKERS;
byte sentinel = NOBODY;
bool guarded = 0;   /* Crew::guarded_ */
bool awake[WORKERS];
bool asleep[WORKERS];  /* on its own bell */

byte arrivals = 0;  /* Queues::arrivals_: a bit for each stream */
bool lasting = 0;   /* somebody is in a part that lasts */

/* StreamSlot */
byte entries[2];
bool arrived[2];
bool started[2];
bool generation[2];  /* of the task at the head: the last bit of its number */
byte claimed[2];
byte remaining[2];
bool linked[2];      /* ready: some parts may be left */

byte drained = 0;
byte executed[2];

/* In Queues::unclaimed. */
#define left(s) (linked[s] -> parts(s) - claimed[s] : 0)

/* Queues::start_head, under the lock. */
inline start(s) {
  started[s] = 1;
  generation[s] = !generation[s];
  remaining[s] = parts(s);
  claimed[s] = 0;
  linked[s] = 1;
  ready = 1
}

/* A stream that has arrived, in Queues::take_in. */
inline take_in_one(s) {
  if
  :: taken & bit(s) ->
#ifndef BUG_SAYS_SO_LATE
     arrived[s] = 0;
#endif
     atomic {
       if
       :: !started[s] && entries[s] > 0 -> start(s)
       :: else -> skip
       fi
     }
#ifdef BUG_SAYS_SO_LATE
     arrived[s] = 0
#endif
  :: else -> skip
  fi
}

/* Queues::take_in, under the lock. */
inline take_in() {
  atomic { taken = arrivals; arrivals = 0 }
  if
  :: taken -> take_in_one(DUTY); take_in_one(CONDUCTOR); taken = 0
  :: else -> skip
  fi
}

/* Crew::plan, under the lock, which it gives back: rings the sentinel first. */
inline plan() {
  do
  :: ready && looking < left(DUTY) + left(CONDUCTOR) && sentinel != NOBODY ->
     awake[sentinel] = 1;
     sentinel = NOBODY;
     wakes_sentinel = 1;
     looking++
  :: ready && looking < left(DUTY) + left(CONDUCTOR) && sentinel == NOBODY ->
     i = 0;
     do
     :: i < WORKERS && !asleep[i] -> i++
     :: i < WORKERS && asleep[i] -> asleep[i] = 0; awake[i] = 1; break
     :: i == WORKERS -> break
     od;
     if
     :: i == WORKERS -> break
     :: else -> looking++
     fi
  :: else -> break
  od;
  i = 0;
  ready = 0;
  lock = 0
}

/* Crew::wake: the others' bells are heard at once. */
inline wake() {
  if
  :: wakes_sentinel -> atomic { edge = 1; wakes_sentinel = 0 }
  :: else -> skip
  fi
}

/* Crew::nobody_comes. A worker in its turn of duty is one of those who look, so it never comes by itself here. */
inline look_who_comes() { alone = (looking == 0) }

/* Crew::put and Queues::push. */
inline put(s) {
#ifdef BUG_COUNT_FIRST
  look_who_comes();
#endif
  entries[s]++;
  atomic { was = arrived[s]; arrived[s] = 1 }
  if
  :: !was -> arrivals = arrivals | bit(s)
  :: else -> was = 0
  fi;
#ifndef BUG_COUNT_FIRST
  look_who_comes();
#endif
  if
  :: alone ->
     atomic { !lock -> lock = 1; alone = 0 }
     take_in();
     atomic { plan() }
     wake()
  :: else -> skip
  fi
}

/* Engine::do_work, on duty: disarms, drains one command at most, issues its task. */
inline turn_of_duty() {
#ifdef BUG_TWO_ON_DUTY
  have = 1;
#else
  atomic { have = !on_duty; on_duty = 1 }
#endif
  if
  :: have ->
     atomic {
       if
       :: armed -> armed = 0; nap = 0
       :: else -> skip
       fi;
       seen = cursor
     }
     atomic {
       if
       :: tail != seen ->
          cursor = seen + 1;
          drained++;
          assert(drained <= COMMANDS);
          did = 1
       :: else -> on_duty = 0
       fi;
       seen = 0;
       have = 0
     }
     if
     :: did -> put(DUTY); on_duty = 0
     :: else -> skip
     fi
  :: else -> skip
  fi
}

/* Queues::take, under the lock: a part of any ready stream. A stream all of whose parts went to claim_next is
 * ready no more. Who finds none looks again. */
inline take() {
  if
  :: linked[DUTY] && left(DUTY) == 0 -> linked[DUTY] = 0
  :: else -> skip
  fi;
  if
  :: linked[CONDUCTOR] && left(CONDUCTOR) == 0 -> linked[CONDUCTOR] = 0
  :: else -> skip
  fi;
  if
  :: linked[DUTY] -> part = DUTY; found = 1
  :: linked[CONDUCTOR] -> part = CONDUCTOR; found = 1
  :: !linked[DUTY] && !linked[CONDUCTOR] -> looking++
  fi;
  if
  :: found ->
     assert(claimed[part] < parts(part));
     claimed[part]++;
     linked[part] = claimed[part] < parts(part);
     mine = generation[part]
  :: else -> skip
  fi
}

/* The end of a part, in Crew::run_parts. */
inline end_part() {
  executed[part]++;
  assert(remaining[part] > 0);
  remaining[part]--;
  finished = (remaining[part] == 0);
  found = 0
}

/* Crew::next_part begins, Queues::complete. */
inline report() {
  atomic {
    !lock -> lock = 1;
    if
    :: finished ->
       finished = 0;
       linked[part] = 0;
       started[part] = 0;
       entries[part]--;
       if
       :: entries[part] > 0 -> start(part)
       :: else -> skip
       fi
    :: else -> skip
    fi;
    part = 0;
    mine = 0
  }
}

/* Crew::first_part, then the rest of Crew::run_parts. */
inline run_parts() {
#ifdef BUG_TAKE_LOOKS_FIRST
  atomic { !lock -> lock = 1 }
  take_in();
  looking--;
#else
  atomic { !lock -> lock = 1; looking-- }
  take_in();
#endif
#ifdef BUG_NOBODY_RUNG
  atomic { take(); ready = 0; lock = 0 }
#else
  atomic { take(); ready = 1; plan() }
  wake();
#endif
  do
  :: !found -> break
  :: else ->
     if  /* over at once, or lasts until all else that is issued has been run */
     :: atomic { end_part() }
     :: atomic { !lasting -> lasting = 1 }
        atomic {
          remaining[part] == 1 && entries[1 - part] == 0 -> lasting = 0;
          end_part()
        }
     fi;
     if
     :: !finished && arrivals == 0 ->  /* Queues::claim_next */
        atomic {
          if
          :: generation[part] == mine && claimed[part] < parts(part) -> claimed[part]++; found = 1
          :: else -> skip
          fi
        }
        if
        :: !found -> report()
        :: else -> skip
        fi
     :: report()
     fi;
     if
     :: found -> skip
     :: else ->  /* Crew::next_part goes on */
        take_in();
        atomic {
          if
          :: take()
          :: looking++  /* a turn of duty is due */
          fi;
          plan()
        }
        wake()
     fi
  od
}

/* Crew::announce and Engine::arm: true in `quiet` if duty has nothing; others poll if one is on duty. */
inline announce() {
#ifdef BUG_ARM_UNGUARDED_ONLY
  atomic { guarded || !on_duty -> have = !guarded; on_duty = on_duty || have }
#else
  atomic { have = !on_duty; on_duty = 1 }
#endif
#if defined(BUG_LIES_DOWN) || defined(BUG_ARM_UNGUARDED_ONLY)
  others_poll = !have;
#else
  others_poll = 0;  /* it looks around once more */
#endif
  if
  :: have ->
     atomic { armed = 1; nap = 1; nap_rung = 0 }
#ifdef BUG_ARM_WITHOUT_LOOK
     atomic { quiet = 1; on_duty = 0 }
#else
     atomic {
       quiet = (tail == cursor);
       if
       :: quiet -> on_duty = 0
       :: else -> skip
       fi
     }
     if
     :: !quiet -> atomic { nap = 0; on_duty = 0 }
     :: else -> skip
     fi;
#endif
     have = 0
  :: else -> skip
  fi
}

/* Crew::rest, once it has announced. */
inline rest() {
#ifdef BUG_REST_LOOKS_FIRST
  atomic { !lock -> lock = 1 }
  found = (arrivals != 0);
  looking--;
#else
  atomic { !lock -> lock = 1; looking-- }
  found = (arrivals != 0);
#endif
  atomic {
    if
    :: found || left(DUTY) + left(CONDUCTOR) > 0 -> looking++
    :: else ->
       awake[me] = 0;
       if
       :: !quiet || guarded ->
          asleep[me] = 1;
          lies = 1
       :: else ->
          sentinel = me;
          guarded = 1;
          lies = 2
       fi
    fi;
    found = 0;
    quiet = 0;
    others_poll = 0;
    lock = 0
  }
  if
  :: lies == 0 -> skip
  :: lies == 1 ->
end_asleep:
     atomic { awake[me] -> lies = 0 }
  :: lies == 2 ->
end_sentinel:
     atomic { edge -> edge = 0; lies = 0 }
     atomic {
       !lock -> guarded = 0;
       if
       :: awake[me] -> skip
       :: else ->
          awake[me] = 1;
          sentinel = NOBODY;
          looking++
       fi
     }
  fi
}

active [WORKERS] proctype worker() {
  byte me = _pid;
  byte i = 0;
  byte seen = 0;
  byte lies = 0;
  byte taken = 0;
  byte part = 0;
  bool did, have, quiet, others_poll, wakes_sentinel, was, alone, ready, found, finished, mine;
  awake[me] = 1;
  do
  :: linked[DUTY] || linked[CONDUCTOR] || arrivals != 0 -> run_parts()
  :: turn_of_duty();
     if
     :: did -> did = 0
     :: else ->
        announce();
        if
        :: !quiet && !others_poll -> skip  /* work came in */
        :: else -> rest()
        fi
     fi
  od
}

inline look() { atomic { due = nap && !nap_rung; nap_rung = nap_rung || due } }

active proctype client() {
  bool due;
  do
  :: tail < COMMANDS ->
#ifdef BUG_LOOK_BEFORE_PUSH
     look();
     tail++;
#else
     tail++;
     look();
#endif
     if
     :: due -> atomic { edge = 1; due = 0 }
     :: else -> skip
     fi
  :: else -> break
  od
}

active proctype conductor() {
  byte i = 0;
  byte taken = 0;
  byte launched = 0;
  bool wakes_sentinel, was, alone, ready;
  do
  :: launched < LAUNCHES -> put(CONDUCTOR); launched++
  :: else -> break
  od
}

/* Where nothing can move any more, all has been done. */
active proctype witness() {
  timeout;
  assert(drained == COMMANDS && entries[DUTY] == 0 && entries[CONDUCTOR] == 0);
  assert(executed[DUTY] == COMMANDS * DUTY_PARTS && executed[CONDUCTOR] == LAUNCHES * CONDUCTOR_PARTS)
}
