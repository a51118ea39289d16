/* The engine's workers: who sleeps where, and who is rung (kernels/device/host/crew.cpp, daemon/engine/duty.cpp,
 * api/shm/ring.hpp). Sequentially consistent.
 *
 * A worker that finds nothing arms duty (Crew::announce, Engine::arm: each ring's nap, then a look at its
 * tail), lies down (Crew::rest) as the sentinel inside the doorbells' wait, or on its own bell if there is a
 * sentinel. A client pushes, then looks at the nap and rings the doorbell once a nap. A command becomes a part
 * of work under the crew's lock, and whoever queues it rings as many sleepers as nobody awake will come for
 * (Crew::plan). A turn of duty is for one worker at a time: the baton.
 *
 * Property: every command is drained once and its part run once; there is no state in which all wait although
 * there is work (an invalid end state). The sentinel's nap of 100 ms and the clients' of 100 ms are left out:
 * nothing may depend on them. Bounds: WORKERS workers, one client, COMMANDS commands.
 *
 * Planted bugs, each of which must be found:
 *   -DBUG_ARM_WITHOUT_LOOK    no look at the tail once the ring's nap is announced
 *   -DBUG_LOOK_BEFORE_PUSH    the client looks at the nap, then publishes the tail
 *   -DBUG_NO_BATON            a turn of duty is not for one at a time
 *   -DBUG_ARM_UNGUARDED_ONLY  a worker arms duty only if there is no sentinel yet
 *
 *   -DBUG_LIES_DOWN           a worker that cannot arm because another has the baton leaves it to that one
 */
#ifndef COMMANDS
#define COMMANDS 2
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#define NOBODY 255

byte tail = 0;      /* client */
bool nap = 0;       /* reader: not awake. The nap's number stands for this: */
bool nap_rung = 0;  /* the client has rung for this very nap */
byte cursor = 0;    /* RingReader::cursor_ */
bool edge = 0;      /* the eventfds in the epoll set: rung since the last wait */
bool armed = 0;     /* Engine::armed_, under the baton */
bool baton = 0;     /* Crew::baton_ */
byte ready = 0;     /* parts that nobody has taken */
byte looking = WORKERS;
byte sentinel = NOBODY;
bool guarded = 0;   /* Crew::guarded_ */
bool awake[WORKERS];
bool asleep[WORKERS];  /* on its own bell */
byte drained = 0;
byte executed = 0;

/* Crew::plan, under the lock: rings the sentinel first. Its bell is rung after the lock is given back. */
inline plan() {
  wakes_sentinel = 0;
  do
  :: looking < ready && sentinel != NOBODY ->
     awake[sentinel] = 1;
     sentinel = NOBODY;
     wakes_sentinel = 1;
     looking++
  :: looking < ready && sentinel == NOBODY ->
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
  :: looking >= ready -> break
  od;
  i = 0
}


/* Engine::do_work under the baton: disarms, drains one command at most, queues its part. */
inline turn_of_duty() {
  did = 0;
#ifdef BUG_NO_BATON
  have = 1;
#else
  atomic { have = !baton; baton = 1 }
#endif
  if
  :: have ->
     if
     :: armed -> armed = 0; nap = 0
     :: else -> skip
     fi;
     seen = cursor;
     if
     :: tail != seen ->
        cursor = seen + 1;
        drained++;
        assert(drained <= COMMANDS);
        did = 1;
        atomic {
          ready++;
          plan()
        }
        if
        :: wakes_sentinel -> edge = 1
        :: else -> skip
        fi
     :: else -> skip
     fi;
     baton = 0
  :: else -> skip
  fi
}

/* Crew::run_parts: takes a part, rings others if there are more, runs it. */
inline run_part() {
  did = 0;
  atomic {
    if
    :: ready > 0 ->
       ready--;
       looking--;
       did = 1;
       plan()
    :: else -> skip
    fi
  }
  if
  :: did ->
     if
     :: wakes_sentinel -> edge = 1
     :: else -> skip
     fi;
     atomic {
       executed++;
       assert(executed <= COMMANDS);
       looking++
     }
  :: else -> skip
  fi
}

/* Crew::announce and Engine::arm: true in `quiet` if duty has nothing; others poll if the baton is taken. */
inline announce() {
#ifdef BUG_ARM_UNGUARDED_ONLY
  atomic { guarded || !baton -> have = !guarded; baton = baton || have }
#else
  atomic { have = !baton; baton = 1 }
#endif
  quiet = 0;
#if defined(BUG_LIES_DOWN) || defined(BUG_ARM_UNGUARDED_ONLY)
  others_poll = !have;
#else
  others_poll = 0;  /* it looks around once more */
#endif
  if
  :: have ->
     armed = 1;
     atomic { nap = 1; nap_rung = 0 }
#ifdef BUG_ARM_WITHOUT_LOOK
     quiet = 1;
#else
     quiet = (tail == cursor);
     if
     :: !quiet -> nap = 0
     :: else -> skip
     fi;
#endif
     baton = 0
  :: else -> skip
  fi
}

active [WORKERS] proctype worker() {
  byte me = _pid;
  byte i = 0;
  byte seen;
  byte lies;
  bool did, have, quiet, others_poll, wakes_sentinel;
  do
  :: run_part();
     if
     :: did -> skip
     :: else -> turn_of_duty()
     fi;
     if
     :: did -> skip
     :: else ->
        announce();
        if
        :: !quiet && !others_poll -> skip  /* work came in */
        :: else ->
           lies = 0;
           atomic {  /* Crew::rest, under the lock until it lies */
             if
             :: ready > 0 -> skip
             :: ready == 0 ->
                awake[me] = 0;
                looking--;
                if
                :: !quiet || guarded ->
                   asleep[me] = 1;
                   lies = 1
                :: else ->
                   sentinel = me;
                   guarded = 1;
                   lies = 2
                fi
             fi
           }
           if
           :: lies == 0 -> skip
           :: lies == 1 ->
end_asleep:   awake[me]
           :: lies == 2 ->
end_sentinel: atomic { edge -> edge = 0 }
              atomic {
                guarded = 0;
                if
                :: awake[me] -> skip
                :: else ->
                   awake[me] = 1;
                   sentinel = NOBODY;
                   looking++
                fi
              }
           fi
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
     :: due -> edge = 1
     :: else -> skip
     fi
  :: else -> break
  od
}

/* Where nothing can move any more, all has been done. */
active proctype witness() {
  timeout;
  assert(drained == COMMANDS && executed == COMMANDS)
}
