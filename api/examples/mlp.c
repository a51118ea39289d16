/* A small network on sharded weights, with checkpoints: muster run --private -n 4 -- ./mlp FOLDER STEPS
 *
 * Its two layers are units, sharded over all ranks: a weight is gathered before kernels read it, and its
 * gradient is reduced. A run goes on from the newest checkpoint in FOLDER, on any number of ranks that
 * divides batch and hidden layer. After STEPS more steps it saves another one. It learns to multiply. */
#include <muster/checkpoint.h>
#include <muster/kernels.h>
#include <muster/units.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBatch = 240, kHidden = 36, kLayers = 2 };
static const double kRate = 0.05, kMomentum = 0.9;
static const char* const kNames[2 * kLayers] = {"w1", "w1.momentum", "w2", "w2.momentum"};
static const int64_t kShapes[kLayers][2] = {{kHidden, 2}, {1, kHidden}}; /* out, in */

static muster_session* session;
static muster_session_info me = MUSTER_SESSION_INFO_INIT;
static muster_units* units;
static muster_unit layers[kLayers];
static muster_checkpoint_tensor saved[2 * kLayers]; /* this rank's shards: weight, momentum, weight, … */

static void check(muster_status_t status) {
  if (status == MUSTER_OK) return;
  fprintf(stderr, "%s: %s\n", muster_status_name(status), muster_last_error());
  exit(1);
}

/* Number i of a fixed sequence in [-1, 1): the same on all ranks, and in every run. */
static float number(int64_t i) {
  uint64_t bits = (uint64_t)(i + 1) * UINT64_C(0x9E3779B97F4A7C15);
  bits = (bits ^ (bits >> 31)) * UINT64_C(0xBF58476D1CE4E5B9);
  return (float)(bits >> 40) / (float)(1 << 23) - 1.0f;
}

static muster_tensor matrix(int64_t rows, int64_t columns, float** values) {
  muster_buffer buffer = 0;
  void* address = NULL;
  check(muster_buffer_alloc(session, (uint64_t)(rows * columns) * sizeof(float), &buffer, &address));
  if (values != NULL) *values = address;
  return muster_view2(buffer, 0, MUSTER_F32, rows, columns);
}

/* Starts a kernel on the compute lane, behind the kernels before it; and after two points, unless NULL. */
static muster_point launch(muster_kernel kernel, const muster_point after[2]) {
  muster_submit submit = MUSTER_SUBMIT_INIT;
  muster_point point = MUSTER_POINT_NONE;
  submit.wait_count = after != NULL ? 2 : 0;
  if (after != NULL) memcpy(submit.waits, after, 2 * sizeof(*after));
  check(muster_launch(session, &kernel, &submit, &point));
  return point;
}

/* The shard of a layer's weight, the whole weight, or the gradient of one of these. */
static muster_tensor weight(int layer, int32_t which) {
  muster_tensor view;
  check(muster_unit_tensor(units, layers[layer], 0, which, &view));
  return view;
}

/* Makes a layer a unit, and draws its weight. Weight and momentum have one layout. */
static void add_layer(int layer) {
  muster_layout_options shape = MUSTER_LAYOUT_OPTIONS_INIT;
  muster_layout* layout = NULL;
  shape.dims = 2;
  memcpy(shape.shape, kShapes[layer], sizeof(kShapes[layer]));
  shape.axis_count = 1;
  shape.axes[0].name = "dp_shard"; /* all ranks, if `muster run` has no --mesh */
  shape.axes[0].placement = MUSTER_SHARD;
  shape.axes[0].dim = layer; /* each rank has some of the hidden features */
  check(muster_layout_create(session, &shape, &layout));
  const muster_parameter parameter = {kNames[2 * layer], layout, MUSTER_F32, 0};
  muster_unit_options unit = MUSTER_UNIT_OPTIONS_INIT;
  unit.name = kNames[2 * layer];
  unit.shard = "dp_shard";
  unit.divisor = kBatch; /* gradients are sums over samples, and become means */
  unit.parameters = &parameter;
  unit.parameter_count = 1;
  check(muster_unit_create(units, &unit, &layers[layer]));
  const muster_tensor shard = weight(layer, MUSTER_UNIT_SHARD);
  const muster_tensor momentum = matrix(shard.size[0], shard.size[1], NULL);
  saved[2 * layer] = (muster_checkpoint_tensor){kNames[2 * layer], layout, shard};
  saved[2 * layer + 1] = (muster_checkpoint_tensor){kNames[2 * layer + 1], layout, momentum};
  muster_buffer_info memory = MUSTER_BUFFER_INFO_INIT;
  check(muster_buffer_query(session, shard.buffer, &memory));
  float* values = (float*)((char*)memory.address + shard.offset_bytes);
  const int64_t count = shard.size[0] * shard.size[1];
  for (int64_t i = 0; i < count; ++i) values[i] = number(1000 * layer + me.rank * count + i);
}

static void forward(int layer, muster_tensor in, muster_tensor out) {
  muster_point ready[2] = {MUSTER_POINT_NONE, MUSTER_POINT_NONE};
  check(muster_unit_forward_begin(units, layers[layer], &ready[0])); /* then the whole weight is here */
  const muster_tensor whole = weight(layer, MUSTER_UNIT_WHOLE);
  const muster_point done = launch(muster_linear_forward(in, whole, muster_none(), out), ready);
  check(muster_unit_forward_end(units, layers[layer], 0, done));
}

/* Writes the gradient over this rank's samples of a layer's weight, and of its input if that is a layer. */
static void backward(int layer, muster_tensor dout, muster_tensor in, muster_tensor din) {
  muster_point ready[2] = {MUSTER_POINT_NONE, MUSTER_POINT_NONE};
  check(muster_unit_backward_begin(units, layers[layer], ready));
  const muster_tensor gradient = weight(layer, MUSTER_UNIT_WHOLE_GRADIENT);
  muster_point done = launch(muster_linear_wgrad(dout, in, gradient, muster_none(), 0), ready);
  const muster_kernel kernel = muster_linear_dgrad(dout, weight(layer, MUSTER_UNIT_WHOLE), din, 0);
  if (layer > 0) done = launch(kernel, NULL);
  check(muster_unit_backward_end(units, layers[layer], 0, done, 0, NULL)); /* after `done` it is reduced */
}

/* Trains from step `first` to `last`. Gives the loss of the last step, over the samples of all ranks. */
static double train(muster_group world, int64_t first, int64_t last) {
  const int64_t own = kBatch / me.world_size;
  float *xs, *products, *loss;
  const muster_tensor x = matrix(own, 2, &xs), product = matrix(own, 1, &products), y = matrix(own, 1, NULL);
  const muster_tensor h = matrix(own, kHidden, NULL), a = matrix(own, kHidden, NULL);
  const muster_tensor dh = matrix(own, kHidden, NULL), da = matrix(own, kHidden, NULL);
  const muster_buffer sum = matrix(1, 1, &loss).buffer;
  for (int64_t step = first; step < last; ++step) {
    muster_point done[2];
    for (int64_t i = 0, sample = step * kBatch + me.rank * own; i < own; ++i, ++sample) {
      for (int64_t k = 0; k < 2; ++k) xs[2 * i + k] = number(2000 + 2 * sample + k);
      products[i] = xs[2 * i] * xs[2 * i + 1];
    }
    check(muster_step_begin(units, MUSTER_POINT_NONE, 0));
    forward(0, x, h);
    launch(muster_gelu_forward(h, a), NULL);
    forward(1, a, y);
    launch(muster_axpby(-1.0, product, 1.0, y), NULL); /* the error, and the gradient of y */
    launch(muster_sum_squares(y, muster_view1(sum, 0, MUSTER_F32, 1), 0.5 / kBatch, 0), NULL);
    backward(1, y, a, da);
    launch(muster_gelu_backward(da, h, dh), NULL);
    backward(0, dh, x, muster_none());
    check(muster_step_end(units, MUSTER_POINT_NONE, done));
    for (int i = 0; i < 2 * kLayers; i += 2) { /* each rank updates its shards */
      const muster_tensor gradient = weight(i / 2, MUSTER_UNIT_GRADIENT_SHARD), momentum = saved[i + 1].array;
      launch(muster_axpby(1.0, gradient, kMomentum, momentum), done);
      done[0] = launch(muster_axpby(-kRate, momentum, 1.0, saved[i].array), NULL);
    }
    check(muster_point_wait(session, done[0], -1)); /* the last point: all before it is done too */
  }
  muster_collective all = MUSTER_COLLECTIVE_INIT;
  all.op = MUSTER_ALL_REDUCE;
  all.group = world;
  all.dtype = MUSTER_F32;
  all.redop = MUSTER_SUM;
  all.source.buffer = all.target.buffer = sum;
  all.count = 1;
  check(muster_run(session, &all, 0));
  return *loss;
}

int main(int argc, char** argv) {
  muster_checkpoints* checkpoints = NULL;
  muster_checkpoints_options folder = MUSTER_CHECKPOINTS_OPTIONS_INIT;
  muster_checkpoint_load_options load = MUSTER_CHECKPOINT_LOAD_OPTIONS_INIT;
  muster_checkpoint_save_options save = MUSTER_CHECKPOINT_SAVE_OPTIONS_INIT;
  muster_checkpoint_info found = MUSTER_CHECKPOINT_INFO_INIT;
  folder.folder = argc > 1 ? argv[1] : "mlp.checkpoints";
  check(muster_open(NULL, &session));
  check(muster_session_query(session, &me));
  check(muster_mesh_group(session, "world", &folder.group));
  check(muster_units_create(session, NULL, &units));
  for (int layer = 0; layer < kLayers; ++layer) add_layer(layer);
  check(muster_checkpoints_open(session, &folder, &checkpoints));
  load.tensors = save.tensors = saved;
  load.tensor_count = save.tensor_count = 2 * kLayers;
  const muster_status_t status = muster_checkpoint_load(checkpoints, &load, &found);
  if (status != MUSTER_ERR_NOT_FOUND) check(status);
  save.step = found.step + (argc > 2 ? strtoull(argv[2], NULL, 10) : 40);
  const double loss = train(folder.group, (int64_t)found.step, (int64_t)save.step);
  check(muster_checkpoint_save(checkpoints, &save));
  if (me.rank == 0) printf("step %d, with %d ranks: loss %.5f\n", (int)save.step, me.world_size, loss);
  check(muster_checkpoints_close(checkpoints));
  check(muster_units_destroy(units));
  check(muster_barrier(session, folder.group));
  check(muster_close(session));
  return loss > 0.056; /* a network that always says 0 loses so much */
}
