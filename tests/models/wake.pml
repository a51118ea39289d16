/* The two sleep handshakes of a session, sequentially consistent: no wake is lost.
 *
 * Engine's sleep (api/shm/ring.hpp): the client publishes tail, then looks whether the engine naps, and rings
 * once a nap. The doorbell is an edge that is remembered, like an eventfd under EPOLLET.
 * Client's sleep (api/shm/wake.hpp): the engine publishes a verdict, raises the wake word, then looks whether
 * the client sleeps. A futex compares the word and goes to sleep in one step.
 *
 * Property: every command is done and every verdict is seen: there is no state in which all wait (an invalid
 * end state), and the assertions hold. Bounds: COMMANDS commands, one after the other or several in flight.
 * Weak memory is not in here: that is ring_model.cpp's.
 *
 * Planted bugs, each of which must be found:
 *   -DBUG_NO_RECHECK          the engine sleeps without a second look at tail
 *   -DBUG_NAP_WITHOUT_NUMBER  the client remembers "I have rung" without which nap it was for
 *   -DBUG_CLIENT_NO_RECHECK   the client does not test again between raising its flag and the wait
 *   -DBUG_WAKE_BEFORE_VERDICT the engine raises the wake word before it publishes
 */
#ifndef COMMANDS
#define COMMANDS 3
#endif

byte tail = 0;           /* client: commands written */
byte reached = 0;        /* engine: commands done */
byte wake = 0;           /* engine: futex word */
byte nap = 0;            /* engine: 0 awake, else the nap's number */
bool client_asleep = 0;  /* client */
bool doorbell = 0;       /* the eventfd's edge */
bool futex_waiting = 0;  /* the kernel's: the client is on the futex queue */

active proctype client() {
  byte wanted = 0;
  byte seen;
  byte look;
  byte rung = 0;
  do
  :: wanted < COMMANDS ->
     /* push one; perhaps more before waiting */
     wanted++;
     tail = wanted;
     look = nap;
#ifdef BUG_NAP_WITHOUT_NUMBER
     if
     :: look != 0 && rung == 0 -> rung = 1; doorbell = 1
     :: look != 0 && rung != 0 -> skip
     :: look == 0 -> skip
     fi;
#else
     if
     :: look != 0 && look != rung -> rung = look; doorbell = 1
     :: else -> skip
     fi;
#endif
     if
     :: wanted < COMMANDS -> skip  /* a burst */
     :: true ->                    /* wait for the last one */
        do
        :: reached >= wanted -> break
        :: else ->
           client_asleep = 1;
#ifdef BUG_CLIENT_NO_RECHECK
           seen = wake;  /* no test between this and the wait */
#else
           seen = wake;
           if
           :: reached >= wanted -> client_asleep = 0; break
           :: else -> skip
           fi;
#endif
           /* FUTEX_WAIT: compare and queue in one step */
           atomic {
             if
             :: wake == seen -> futex_waiting = 1
             :: else -> skip
             fi
           }
           !futex_waiting;
           client_asleep = 0
        od
     fi
  :: wanted == COMMANDS && reached == COMMANDS -> break
  od
}

active proctype engine() {
  byte done = 0;
  byte naps = 0;
  bool sleeper;
  do
  :: done == COMMANDS -> break
  :: done < COMMANDS && tail != done ->
     done++;
#ifdef BUG_WAKE_BEFORE_VERDICT
     wake++;
     sleeper = client_asleep;
     if
     :: sleeper -> futex_waiting = 0
     :: else -> skip
     fi;
     reached = done
#else
     reached = done;
     wake++;
     sleeper = client_asleep;
     if
     :: sleeper -> futex_waiting = 0  /* FUTEX_WAKE */
     :: else -> skip
     fi
#endif
  :: done < COMMANDS && tail == done ->
     naps++;
     assert(naps < 250);
     nap = naps;
#ifndef BUG_NO_RECHECK
     if
     :: tail != done -> nap = 0
     :: else ->
        doorbell;
        doorbell = 0;
        nap = 0
     fi
#else
     doorbell;
     doorbell = 0;
     nap = 0
#endif
  od;
  assert(reached == tail)
}
