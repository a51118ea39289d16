/* Two products, sharded over tp: muster run --private -n 4 --mesh tp=4 -- ./kernels
 *
 * y = (x * w1^T) * w2^T, as in a transformer's MLP. w1 is cut by its rows: each rank computes some columns of
 * the hidden layer without the other ranks (column-parallel). w2 is cut by its columns to fit: each rank has
 * one term of y, and one all-reduce over the group "tp" adds them up (row-parallel). An activation between
 * the two products would be one more kernel on the rank's own columns. */
#include <muster/kernels.h>
#include <muster/muster.h>

#include <stdio.h>
#include <stdlib.h>

enum { kTokens = 32, kWidth = 64, kHidden = 256 };

static void check(muster_status_t status) {
  if (status == MUSTER_OK) return;
  fprintf(stderr, "%s: %s\n", muster_status_name(status), muster_last_error());
  exit(1);
}

/* The unsharded operands, as functions of the indices. Whole numbers, so sums are exact in any order. */
static float x_at(int token, int feature) {
  return (float)((token + 2 * feature) % 5 - 2);
}
static float w1_at(int hidden, int feature) {
  return (float)((3 * hidden + feature) % 7 - 3);
}
static float w2_at(int feature, int hidden) {
  return (float)((feature + 5 * hidden) % 3 - 1);
}

/* Memory for a matrix: kernels take `view`, this process uses the pointer. */
static float* matrix(muster_session* session, int rows, int columns, muster_tensor* view) {
  muster_buffer buffer = 0;
  void* address = NULL;
  check(muster_buffer_alloc(session, (uint64_t)rows * (uint64_t)columns * sizeof(float), &buffer, &address));
  *view = muster_view2(buffer, 0, MUSTER_F32, rows, columns);
  return address;
}

/* Starts a kernel on the compute lane, behind the starts before it. */
static muster_point launch(muster_session* session, muster_kernel kernel) {
  muster_submit submit = MUSTER_SUBMIT_INIT; /* MUSTER_LANE_COMPUTE, no waits */
  muster_point point = MUSTER_POINT_NONE;
  check(muster_launch(session, &kernel, &submit, &point));
  return point;
}

/* Starts the sum of y over the ranks of tp, in place, once `computed` is reached. */
static muster_point add_up(muster_session* session, muster_group tp, muster_tensor y, muster_point computed) {
  muster_collective sum = MUSTER_COLLECTIVE_INIT;
  muster_submit submit = MUSTER_SUBMIT_INIT;
  muster_point point = MUSTER_POINT_NONE;
  sum.op = MUSTER_ALL_REDUCE;
  sum.group = tp;
  sum.dtype = MUSTER_F32;
  sum.redop = MUSTER_SUM;
  sum.source.buffer = sum.target.buffer = y.buffer;
  sum.count = kTokens * kWidth;
  submit.lane = MUSTER_LANE_ALLREDUCE;
  submit.wait_count = 1;
  submit.waits[0] = computed;
  check(muster_collect(session, &sum, &submit, &point));
  return point;
}

/* One element of y by plain loops over the unsharded operands. */
static float plain(int token, int feature) {
  float y = 0.0f;
  for (int h = 0; h < kHidden; ++h) {
    float hidden = 0.0f;
    for (int k = 0; k < kWidth; ++k) hidden += x_at(token, k) * w1_at(h, k);
    y += hidden * w2_at(feature, h);
  }
  return y;
}

int main(void) {
  muster_session* session = NULL;
  muster_group tp = 0;
  int32_t part = 0, parts = 0;
  check(muster_open(NULL, &session));
  check(muster_mesh_group(session, "tp", &tp));
  check(muster_mesh_coords(session, "tp", &part, &parts));
  if (kHidden % parts != 0) {
    fprintf(stderr, "tp=%d does not divide %d hidden features\n", parts, kHidden);
    return 2;
  }

  /* This rank holds the hidden features [first, first + own) of both weights, and all of x. */
  const int own = kHidden / parts, first = part * own;
  muster_tensor x, w1, w2, hidden, y;
  float* x_values = matrix(session, kTokens, kWidth, &x);
  float* w1_values = matrix(session, own, kWidth, &w1);
  float* w2_values = matrix(session, kWidth, own, &w2);
  float* y_values = matrix(session, kTokens, kWidth, &y);
  matrix(session, kTokens, own, &hidden);
  for (int t = 0; t < kTokens; ++t)
    for (int k = 0; k < kWidth; ++k) x_values[t * kWidth + k] = x_at(t, k);
  for (int k = 0; k < kWidth; ++k)
    for (int h = 0; h < own; ++h) {
      w1_values[h * kWidth + k] = w1_at(first + h, k);
      w2_values[k * own + h] = w2_at(k, first + h);
    }

  launch(session, muster_linear_forward(x, w1, muster_none(), hidden));
  const muster_point computed = launch(session, muster_linear_forward(hidden, w2, muster_none(), y));
  check(muster_point_wait(session, add_up(session, tp, y, computed), -1));

  int wrong = 0;
  for (int t = 0; t < kTokens; ++t)
    for (int k = 0; k < kWidth; ++k) wrong += y_values[t * kWidth + k] != plain(t, k);
  printf("part %d of %d, hidden features %d to %d: y[1][2] is %g, %d of %d wrong\n", part, parts, first,
         first + own - 1, (double)y_values[kWidth + 2], wrong, kTokens * kWidth);

  check(muster_barrier(session, tp));
  check(muster_close(session));
  return wrong != 0;
}
