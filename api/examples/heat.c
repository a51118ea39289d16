/* A field over ranks, and halos behind its computation: muster run --private -n 3 -- ./heat
 *
 * Heat spreads over a torus, whose rows are cut over the ranks, evenly or not. While the rows of the next
 * ranks travel, a rank computes the points that do not read them. Any number of ranks computes the same bits.
 */
#include <muster/halo.h>
#include <muster/kernels.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRows = 241, kColumns = 480, kSteps = 60 };

static void check(muster_status_t status) {
  if (status == MUSTER_OK) return;
  fprintf(stderr, "%s: %s\n", muster_status_name(status), muster_last_error());
  exit(1);
}

struct Field {
  muster_session* session;
  muster_session_info info;
  muster_group world;
  muster_stencil* stencil; /* what all ranks know */
  muster_halo_info part;   /* this rank's part of it */
};

static void cut(struct Field* field) {
  muster_layout_options rows = MUSTER_LAYOUT_OPTIONS_INIT;
  const muster_window wrapped = muster_window_convolution(3, 1, 1, 1, 1, MUSTER_PAD_CIRCULAR);
  const muster_window windows[2] = {wrapped, wrapped};
  muster_stencil_options options = MUSTER_STENCIL_OPTIONS_INIT;
  muster_layout* layout = NULL;
  rows.dims = 2;
  rows.shape[0] = kRows;
  rows.shape[1] = kColumns;
  rows.axis_count = 1;
  rows.axes[0].ranks = field->info.world_size;
  rows.axes[0].placement = MUSTER_SHARD; /* dim 0 */
  check(muster_layout_create(NULL, &rows, &layout));
  options.layout = layout;
  options.windows = windows;
  check(muster_stencil_create(&options, &field->stencil));
  check(muster_stencil_query(field->stencil, field->info.rank, MUSTER_CORNERS_DIRECT, &field->part));
  check(muster_layout_destroy(layout));
}

/* The points of a box, or their neighbours, in an array with ghosts. */
static muster_tensor points(const struct Field* field, muster_tensor array, muster_halo_box box, int down,
                            int right) {
  const int64_t *of = box.offset, *from = field->part.held.offset;
  const int64_t row = of[0] + down - from[0], column = of[1] + right - from[1];
  array.offset_bytes += (uint64_t)(row * array.stride[0] + column) * sizeof(float);
  array.size[0] = box.length[0];
  array.size[1] = box.length[1];
  return array;
}

/* Plans of one step over the points of a box: five kernels. */
static void plan_step(const struct Field* field, muster_tensor from, muster_tensor to, muster_halo_box box,
                      muster_plan* plans, uint32_t* count) {
  static const int kReads[5][2] = {{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}};
  if (box.length[0] * box.length[1] == 0) return;
  for (int i = 0; i < 5; ++i) {
    const muster_tensor read = points(field, from, box, kReads[i][0], kReads[i][1]);
    const muster_kernel kernel =
        muster_axpby(i == 0 ? 0.5 : 0.125, read, i != 0, points(field, to, box, 0, 0));
    check(muster_plan_kernel(field->session, &kernel, &plans[(*count)++]));
  }
}

/* A halo of `from`. Its ghosts come, and meanwhile the points of `to` are computed that need none. */
static void plan_halo(const struct Field* field, muster_halos* halos, const char* name, muster_tensor from,
                      muster_tensor to) {
  muster_plan interior[5], boundary[4 * 5];
  muster_halo_options options = MUSTER_HALO_OPTIONS_INIT;
  muster_halo_box boxes[4];
  size_t count = 0;
  muster_halo halo = 0; /* halos are numbered as they are made */
  options.name = name;
  options.stencil = field->stencil;
  options.held = from;
  options.forward = (muster_halo_kernels){interior, boundary, 0, 0};
  plan_step(field, from, to, field->part.interior, interior, &options.forward.interior_count);
  check(muster_stencil_boxes(field->stencil, field->info.rank, -1, boxes, 4, &count));
  for (size_t i = 0; i < count; ++i)
    plan_step(field, from, to, boxes[i], boundary, &options.forward.boundary_count);
  check(muster_halo_create(halos, &options, &halo));
}

/* A number that another bit in any point would change, and that is the same however the field is cut. */
static int64_t bits_of(const struct Field* field, muster_tensor own, const float* values) {
  muster_collective sum = {.size = sizeof sum, .op = MUSTER_ALL_REDUCE, .redop = MUSTER_SUM, .count = 1};
  void* total = NULL;
  uint64_t bits = 0;
  for (int64_t r = 0; r < own.size[0]; ++r)
    for (int64_t c = 0; c < own.size[1]; ++c) {
      uint32_t one;
      memcpy(&one, &values[r * own.stride[0] + c], sizeof one);
      bits += (one + UINT64_C(1)) * (uint64_t)(2 * ((field->part.own.offset[0] + r) * kColumns + c) + 1);
    }
  sum.group = field->world;
  sum.dtype = MUSTER_I64;
  check(muster_buffer_alloc(field->session, sizeof bits, &sum.source.buffer, &total));
  sum.target = sum.source;
  memcpy(total, &bits, sizeof bits);
  check(muster_run(field->session, &sum, 0));
  return *(int64_t*)total;
}

int main(void) {
  struct Field field = {.info = MUSTER_SESSION_INFO_INIT, .part = MUSTER_HALO_INFO_INIT};
  muster_halos_options options = MUSTER_HALOS_OPTIONS_INIT;
  muster_halos* halos = NULL;
  muster_point done = MUSTER_POINT_NONE;
  muster_tensor arrays[2];
  void* values[2];
  check(muster_open(NULL, &field.session));
  check(muster_session_query(field.session, &field.info));
  check(muster_mesh_group(field.session, "world", &field.world));
  cut(&field);
  const muster_halo_box own = field.part.own, held = field.part.held;
  for (int i = 0; i < 2; ++i) {
    const uint64_t bytes = (uint64_t)(held.length[0] * held.length[1]) * sizeof(float);
    muster_buffer buffer = 0;
    check(muster_buffer_alloc(field.session, bytes + 1, &buffer, &values[i])); /* a rank may hold nothing */
    arrays[i] = muster_view(buffer, 0, MUSTER_F32, 2, held.length);
  }
  const muster_tensor mine = points(&field, arrays[0], own, 0, 0);
  float* first = (float*)values[0] + mine.offset_bytes / sizeof(float);
  for (int64_t r = 0; r < own.length[0]; ++r)
    for (int64_t c = 0; c < kColumns; ++c)
      first[r * mine.stride[0] + c] = (float)(((own.offset[0] + r) * 31 + c * 17) % 97);
  options.group = field.world;
  check(muster_halos_create(field.session, &options, &halos));
  plan_halo(&field, halos, "even", arrays[0], arrays[1]);
  plan_halo(&field, halos, "odd", arrays[1], arrays[0]);
  for (muster_halo step = 0; step < kSteps; ++step) /* nothing waits here: points say the order */
    check(muster_halo_forward(halos, step % 2, done, &done));
  check(muster_point_wait(field.session, done, -1));
  const int64_t bits = bits_of(&field, mine, first);
  if (field.info.rank == 0)
    printf("%d ranks: the bits after %d steps are %" PRIx64 "\n", field.info.world_size, kSteps, bits);
  check(muster_halos_destroy(halos));
  check(muster_stencil_destroy(field.stencil));
  muster_close(field.session);
  return 0;
}
