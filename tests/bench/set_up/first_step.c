/* A rank that attaches and reduces once: what a launcher starts when its first step is timed. */
#include <muster/muster.h>

#include <stdio.h>

int main(void) {
  muster_session* session = NULL;
  muster_session_info me = MUSTER_SESSION_INFO_INIT;
  muster_collective sum = MUSTER_COLLECTIVE_INIT;
  void* address = NULL;
  sum.op = MUSTER_ALL_REDUCE;
  sum.dtype = MUSTER_F32;
  sum.redop = MUSTER_SUM;
  sum.count = 1;
  if (muster_open(NULL, &session) != MUSTER_OK || muster_session_query(session, &me) != MUSTER_OK ||
      muster_mesh_group(session, "world", &sum.group) != MUSTER_OK ||
      muster_buffer_alloc(session, sizeof(float), &sum.source.buffer, &address) != MUSTER_OK) {
    fprintf(stderr, "%s\n", muster_last_error());
    return 1;
  }
  sum.target = sum.source;
  *(float*)address = 1;
  if (muster_run(session, &sum, 0) != MUSTER_OK || *(float*)address != (float)me.world_size) {
    fprintf(stderr, "rank %d: %s\n", me.rank, muster_last_error());
    return 1;
  }
  if (me.rank == 0) {
    printf("first step\n");
    fflush(stdout);
  }
  return muster_barrier(session, sum.group) == MUSTER_OK && muster_close(session) == MUSTER_OK ? 0 : 1;
}
