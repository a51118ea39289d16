/* A rank dies and the others go on without it: muster run --private -n 3 -- ./recover
 *
 * The last rank kills itself in the middle of the run. The others do not wait for it: their next operation
 * fails at once and names the lost rank. They make a group of the survivors, agree on the step at which to go
 * on, and go on there. */
#include <muster/muster.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { kSteps = 4, kFatalStep = 2 };

static void check(muster_status_t status) {
  if (status == MUSTER_OK) return;
  fprintf(stderr, "%s: %s\n", muster_status_name(status), muster_last_error());
  exit(1);
}

/* One 64-bit number of each member in `buffer`, reduced in place. After a failure its contents are undefined.
 */
static muster_status_t reduce(muster_session* session, muster_group group, muster_redop redop,
                              muster_buffer buffer) {
  muster_collective all = MUSTER_COLLECTIVE_INIT;
  all.op = MUSTER_ALL_REDUCE;
  all.group = group;
  all.dtype = MUSTER_I64;
  all.redop = redop;
  all.source.buffer = all.target.buffer = buffer;
  all.count = 1;
  return muster_run(session, &all, 0);
}

/* Collective: all survivors call it, each with the step that failed. Gives the group of the survivors, and
 * the first step that failed at any of them: at a death some may have left a step that others are still in.
 */
static int64_t regroup(muster_session* session, muster_group* group, int64_t failed, muster_buffer buffer,
                       int64_t* value) {
  muster_status_t status;
  do {
    check(muster_group_shrink(session, *group, 0, group)); /* waits for all survivors */
    *value = failed;
    status = reduce(session, *group, MUSTER_MIN, buffer);
  } while (status == MUSTER_ERR_PEER_LOST); /* another rank died meanwhile */
  check(status);
  return *value;
}

int main(void) {
  muster_session* session = NULL;
  muster_session_info me = MUSTER_SESSION_INFO_INIT;
  muster_group_info members = MUSTER_GROUP_INFO_INIT;
  muster_group group = 0;
  muster_buffer buffer = 0;
  void* address = NULL;
  int wrong = 0;
  check(muster_open(NULL, &session));
  check(muster_session_query(session, &me));
  check(muster_mesh_group(session, "world", &group));
  check(muster_buffer_alloc(session, sizeof(int64_t), &buffer, &address));
  int64_t* value = address;

  int64_t step = 0;
  while (step < kSteps) {
    if (step == kFatalStep && me.rank > 0 && me.rank == me.world_size - 1) {
      fflush(stdout);
      raise(SIGKILL);
    }
    *value = 1; /* each rank adds one, so the sum is the number of ranks here */
    const muster_status_t status = reduce(session, group, MUSTER_SUM, buffer);
    if (status == MUSTER_ERR_PEER_LOST) {
      muster_failure failure = MUSTER_FAILURE_INIT;
      check(muster_last_failure(session, &failure));
      step = regroup(session, &group, step, buffer, value);
      printf("rank %d is lost, the others go on with step %d\n", failure.culprit_rank, (int)step);
      continue;
    }
    check(status);
    check(muster_group_query(session, group, &members));
    wrong += *value != members.ranks;
    printf("step %d: %d ranks are here\n", (int)step, (int)*value);
    ++step;
  }

  check(muster_barrier(session, group));
  check(muster_close(session));
  return wrong != 0;
}
