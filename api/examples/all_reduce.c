/* Sums a vector over all ranks, like MPI_Allreduce: muster run --private -n 4 -- ./all_reduce */
#include <muster/muster.h>

#include <stdio.h>
#include <stdlib.h>

enum { kCount = 1024 };

/* Every call returns a status, and muster_last_error() has its sentence. A rank that exits without
 * muster_close counts as lost: the others get MUSTER_ERR_PEER_LOST and do not wait for it. */
static void check(muster_status_t status) {
  if (status == MUSTER_OK) return;
  fprintf(stderr, "%s: %s\n", muster_status_name(status), muster_last_error());
  exit(1);
}

int main(void) {
  muster_session* session = NULL;
  muster_session_info me = MUSTER_SESSION_INFO_INIT;
  muster_group world = 0;
  check(muster_open(NULL, &session)); /* MPI_Init; `muster run` has set the rank in the environment */
  check(muster_session_query(session, &me));
  check(muster_mesh_group(session, "world", &world)); /* MPI_COMM_WORLD */

  /* Ranks exchange what lies in buffers: memory of the daemon, which this process sees at `address`. */
  muster_buffer buffer = 0;
  void* address = NULL;
  check(muster_buffer_alloc(session, kCount * sizeof(float), &buffer, &address));
  float* values = address;
  for (int i = 0; i < kCount; ++i) values[i] = (float)(me.rank + 1);

  /* A collective is a value. All members of the group run the same one, or each gets an error. */
  muster_collective sum = MUSTER_COLLECTIVE_INIT;
  sum.op = MUSTER_ALL_REDUCE;
  sum.group = world;
  sum.dtype = MUSTER_F32;
  sum.redop = MUSTER_SUM;
  sum.source.buffer = buffer;
  sum.target.buffer = buffer; /* the same place as the source, like MPI_IN_PLACE */
  sum.count = kCount;
  check(muster_run(session, &sum, 0)); /* waits for the others, 60 s at most by default */

  const float expected = (float)(me.world_size * (me.world_size + 1)) / 2;
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) wrong += values[i] != expected;
  printf("rank %d of %d: the sum is %g, %d wrong\n", me.rank, me.world_size, (double)values[0], wrong);

  check(muster_barrier(session, world)); /* a rank that closes while others still work is lost to them */
  check(muster_close(session));          /* frees the buffer too */
  return wrong != 0;
}
