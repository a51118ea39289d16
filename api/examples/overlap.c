/* Communication behind computation, by lanes and points: muster run --private -n 2 -- ./overlap
 *
 * A lane is an ordered stream of work of this rank; work on different lanes overlaps. Each start reaches a
 * point, and may name points that it waits for. This is a small training step: while one layer's product is
 * computed, the product of the layer before is summed over all ranks. An update waits for the sums. */
#include <muster/kernels.h>
#include <muster/muster.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { kLayers = 4, kSide = 256, kElements = kSide * kSide };

static void check(muster_status_t status) {
  if (status == MUSTER_OK) return;
  fprintf(stderr, "%s: %s\n", muster_status_name(status), muster_last_error());
  exit(1);
}

/* Starts `plan` on a lane once `after` is reached. Asks nobody and waits for nothing: one write into a ring.
 */
static muster_point start(muster_session* session, muster_plan plan, muster_lane lane, muster_point after) {
  muster_submit submit = MUSTER_SUBMIT_INIT;
  muster_point point = MUSTER_POINT_NONE;
  submit.lane = lane;
  submit.wait_count = 1;
  submit.waits[0] = after; /* MUSTER_POINT_NONE is always reached */
  check(muster_plan_start(session, plan, &submit, &point));
  return point;
}

static muster_tensor square(muster_session* session, float** values) {
  muster_buffer buffer = 0;
  void* address = NULL;
  check(muster_buffer_alloc(session, kElements * sizeof(float), &buffer, &address));
  if (values != NULL) *values = address;
  return muster_view2(buffer, 0, MUSTER_F32, kSide, kSide);
}

/* A plan is checked once and started as often as wanted. Making one is local: it waits for no other rank. */
static muster_plan sum_plan(muster_session* session, muster_group world, muster_buffer buffer,
                            uint64_t count) {
  muster_collective sum = MUSTER_COLLECTIVE_INIT;
  muster_plan plan = 0;
  sum.op = MUSTER_ALL_REDUCE;
  sum.group = world;
  sum.dtype = MUSTER_F32;
  sum.redop = MUSTER_SUM;
  sum.source.buffer = sum.target.buffer = buffer;
  sum.count = count;
  check(muster_plan_collective(session, &sum, &plan));
  return plan;
}

static muster_plan kernel_plan(muster_session* session, muster_kernel kernel) {
  muster_plan plan = 0;
  check(muster_plan_kernel(session, &kernel, &plan));
  return plan;
}

static double milliseconds(muster_session* session, const char* counter) {
  uint64_t ns = 0;
  check(muster_counter(session, counter, &ns));
  return (double)ns * 1e-6;
}

int main(void) {
  muster_session* session = NULL;
  muster_session_info me = MUSTER_SESSION_INFO_INIT;
  muster_group world = 0;
  float *in, *weights, *total, *tick;
  muster_plan products[kLayers], sums[kLayers], updates[kLayers];
  check(muster_open(NULL, &session));
  check(muster_session_query(session, &me));
  check(muster_mesh_group(session, "world", &world));

  const muster_tensor x = square(session, &in), w = square(session, &weights), all = square(session, &total);
  for (int layer = 0; layer < kLayers; ++layer) {
    const muster_tensor y = square(session, NULL);
    products[layer] = kernel_plan(session, muster_linear_forward(x, w, muster_none(), y));
    sums[layer] = sum_plan(session, world, y.buffer, kElements);
    updates[layer] = kernel_plan(session, muster_axpby(1.0, y, 1.0, all)); /* all += y */
  }
  const muster_plan meet = sum_plan(session, world, square(session, &tick).buffer, 1);

  /* A timeline of our own: the first product waits for it, and so all later work does. */
  uint32_t timeline = 0;
  check(muster_timeline_create(session, &timeline));
  const muster_point filled = muster_timeline_point(timeline, 1);

  muster_point computed[kLayers], summed[kLayers], updated = MUSTER_POINT_NONE;
  for (int layer = 0; layer < kLayers; ++layer) {
    computed[layer] =
        start(session, products[layer], MUSTER_LANE_COMPUTE, layer == 0 ? filled : MUSTER_POINT_NONE);
    summed[layer] = start(session, sums[layer], MUSTER_LANE_ALLREDUCE, computed[layer]);
  }
  for (int layer = 0; layer < kLayers; ++layer)
    updated = start(session, updates[layer], MUSTER_LANE_COMPUTE, summed[layer]);

  /* This start comes last and is done first: it is on a lane of its own, and lanes have no common order. */
  tick[0] = 1.0f;
  check(muster_point_wait(session, start(session, meet, MUSTER_LANE_SMALL, MUSTER_POINT_NONE), -1));
  int wrong = tick[0] != (float)me.world_size;
  int pending = 0;
  for (int layer = 0; layer < kLayers; ++layer) {
    pending += muster_point_test(session, computed[layer]) == MUSTER_PENDING;
    pending += muster_point_test(session, summed[layer]) == MUSTER_PENDING;
  }
  wrong += pending != 2 * kLayers;
  printf("started last and done, while %d others wait for the input\n", pending);

  /* No work reads the input before the timeline is raised, so we may still write it. */
  for (int i = 0; i < kElements; ++i) {
    in[i] = 1.0f;
    weights[i] = (float)(me.rank + 1);
  }
  check(muster_timeline_signal(session, timeline, 1));
  check(muster_point_wait(session, updated, -1)); /* the last point: all before it is done too */

  const float expected = (float)(kLayers * kSide * me.world_size * (me.world_size + 1)) / 2;
  for (int i = 0; i < kElements; ++i) wrong += total[i] != expected;
  printf("the sum over %d layers is %g, %d wrong\n", kLayers, (double)total[0], wrong);
  printf("kernels ran for %.1f ms, all-reduces for %.1f ms; kernels waited for those for %.1f ms\n",
         milliseconds(session, "compute_busy_ns"), milliseconds(session, "comm_busy_ns"),
         milliseconds(session, "exposed_ns"));

  check(muster_barrier(session, world)); /* a rank that closes while others still work is lost to them */
  check(muster_close(session));          /* plans and buffers go with the session */
  return wrong != 0;
}
