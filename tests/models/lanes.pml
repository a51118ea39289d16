/* Order across groups (decision D7): collectives of different groups, on different lanes, finish in whatever
 * order each rank submits them (scheduler/run/graph.cpp: submit, pump; scheduler/run/match_queue.cpp: arrive).
 *
 * The smallest mesh in which ranks can wait in a circle is 2 x 2: rank r has a row with r ^ 1 and a column with
 * r ^ 2, and 0-1-3-2-0 is the circle. A third dimension adds circles, but none that is shorter or other in kind.
 * A lane runs its commands in order: the head arrives, waits for all members of its group, is run and makes
 * room. What a command holds while it waits is its lane's place, reserved for it, and nothing else.
 *
 * Property: there is no state in which all wait before all is done. Bounds: 4 ranks, 2 groups each, OPS
 * collectives of each group, submitted in any order by each rank.
 *
 * Planted bugs, each a circular wait, each of which must be found:
 *   -DBUG_ONE_LANE       rows and columns share a lane, so a rank's order becomes an order of arrival
 *   -DBUG_SHARED_CREDIT  the lanes of a rank share one credit, held while a collective waits
 *   -DBUG_CROSS_WAIT     commands wait for points of the other lane, two ranks one way and two the other
 */
#ifndef OPS
#define OPS 1
#endif
#define RANKS 4
#define ALL (RANKS * 2 * OPS)

/* Of rank r and group g (0 row, 1 column): index r * 2 + g. */
chan lane[8] = [2 * OPS] of { bit };
bool arrived[8];
bool done[8];
byte credit[8];
byte points[8];  /* the lane's timeline */
byte finished = 0;

#define partner(r, g) (((r) ^ (1 << (g))) * 2 + (g))

proctype rank(byte r) {
  byte rows = 0, columns = 0;
  do
  :: rows < OPS -> rows++; lane[r * 2]!0
#ifdef BUG_ONE_LANE
  :: columns < OPS -> columns++; lane[r * 2]!1
#else
  :: columns < OPS -> columns++; lane[r * 2 + 1]!1
#endif
  :: rows == OPS && columns == OPS -> break
  od
}

proctype pump(byte r; byte which) {
  bit g;
end:
  do
  :: lane[r * 2 + which]?<g> ->
#ifdef BUG_CROSS_WAIT
     /* Ranks 0 and 3: the row after the column; ranks 1 and 2: the column after the row. */
     if
     :: (r == 0 || r == 3) && g == 0 -> points[r * 2 + 1] > points[r * 2]
     :: (r == 1 || r == 2) && g == 1 -> points[r * 2] > points[r * 2 + 1]
     :: else -> skip
     fi;
#endif
     atomic {  /* MatchQueue::arrive: the last one to come sends all on their way */
#ifdef BUG_SHARED_CREDIT
       credit[r * 2] > 0 -> credit[r * 2]--;
#else
       credit[r * 2 + which] > 0 -> credit[r * 2 + which]--;
#endif
       arrived[r * 2 + g] = 1;
       if
       :: arrived[partner(r, g)] ->
          arrived[r * 2 + g] = 0;
          arrived[partner(r, g)] = 0;
          done[r * 2 + g] = 1;
          done[partner(r, g)] = 1
       :: else -> skip
       fi
     }
     done[r * 2 + g];
     atomic {
       done[r * 2 + g] = 0;
       lane[r * 2 + which]?g;
#ifdef BUG_SHARED_CREDIT
       credit[r * 2]++;
#else
       credit[r * 2 + which]++;
#endif
       points[r * 2 + g]++;
       finished++;
       assert(finished <= ALL)
     }
  od
}

init {
  byte r = 0;
  atomic {
    do
    :: r < RANKS ->
       credit[r * 2] = 1;
       credit[r * 2 + 1] = 1;
       run rank(r);
       run pump(r, 0);
       run pump(r, 1);
       r++
    :: else -> break
    od
  }
  timeout;
  assert(finished == ALL)
}
