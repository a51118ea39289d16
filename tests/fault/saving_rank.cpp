// A rank that saves: saving_rank ENDPOINT JOB RANK WORLD FOLDER STEP KEEP
//
// Loads the newest checkpoint of the folder, if there is one, and makes sure that each element is right:
// those of step N are N plus their place. Prints "loaded N", or "none", or "wrong N". Then saves step STEP,
// and prints "saved", or "failed STATUS TEXT".
#include <muster/checkpoint.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <muster/muster.h>

namespace {

constexpr std::int64_t kRows = 12, kColumns = 1 << 17;  // 6 MiB
constexpr float kOfAStep = 1 << 21;

void expect(muster_status_t status) {
  if (status == MUSTER_OK) return;
  std::printf("failed %s %s\n", muster_status_name(status), muster_last_error());
  std::fflush(stdout);
  std::exit(3);
}

// Calls body(element, value that it has at step 0).
template<class Body>
void each(const muster_layout* layout, int rank, float* data, Body body) {
  muster_box box{};
  std::size_t count = 0;
  expect(muster_layout_boxes(layout, rank, &box, 1, &count));
  for (std::int64_t i = 0; count > 0 && i < box.length[0] * kColumns; ++i)
    body(data[i], static_cast<float>(box.offset[0] * kColumns + i));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  const int rank = std::atoi(argv[3]), world = std::atoi(argv[4]), step = std::atoi(argv[6]);
  muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
  options.endpoint = argv[1];
  options.job = argv[2];
  options.rank = rank;
  options.world_size = world;
  muster_session* session = nullptr;
  expect(muster_open(&options, &session));
  muster_checkpoints_options said = MUSTER_CHECKPOINTS_OPTIONS_INIT;
  said.folder = argv[5];
  said.keep = static_cast<std::uint32_t>(std::atoi(argv[7]));
  expect(muster_mesh_group(session, "world", &said.group));
  muster_checkpoints* checkpoints = nullptr;
  expect(muster_checkpoints_open(session, &said, &checkpoints));

  muster_layout_options rows = MUSTER_LAYOUT_OPTIONS_INIT;
  rows.dims = 2;
  rows.shape[0] = kRows;
  rows.shape[1] = kColumns;
  rows.axis_count = 1;
  rows.axes[0].ranks = world;
  rows.axes[0].placement = MUSTER_SHARD;
  muster_layout* layout = nullptr;
  expect(muster_layout_create(nullptr, &rows, &layout));
  std::int64_t shape[MUSTER_TENSOR_DIMS_MAX];
  expect(muster_layout_local_shape(layout, rank, shape));
  muster_buffer buffer = 0;
  void* address = nullptr;
  expect(muster_buffer_alloc(session, static_cast<std::uint64_t>(kRows * kColumns) * 4, &buffer, &address));
  auto* data = static_cast<float*>(address);
  const muster_checkpoint_tensor tensor{
      "w", layout, {buffer, 0, MUSTER_F32, 2, {shape[0], kColumns}, {kColumns, 1}}};

  muster_checkpoint_load_options load = MUSTER_CHECKPOINT_LOAD_OPTIONS_INIT;
  load.tensors = &tensor;
  load.tensor_count = 1;
  muster_checkpoint_info info = MUSTER_CHECKPOINT_INFO_INIT;
  const muster_status_t loaded = muster_checkpoint_load(checkpoints, &load, &info);
  if (loaded == MUSTER_ERR_NOT_FOUND) {
    std::printf("none\n");
  } else {
    expect(loaded);
    bool right = true;
    each(layout, rank, data, [&](float& element, float value) {
      right = right && element == value + kOfAStep * static_cast<float>(info.step);
    });
    std::printf("%s %d\n", right ? "loaded" : "wrong", static_cast<int>(info.step));
  }
  std::fflush(stdout);
  each(layout, rank, data,
       [&](float& element, float value) { element = value + kOfAStep * static_cast<float>(step); });
  muster_checkpoint_save_options save = MUSTER_CHECKPOINT_SAVE_OPTIONS_INIT;
  save.tensors = &tensor;
  save.tensor_count = 1;
  save.step = static_cast<std::uint64_t>(step);
  const muster_status_t saved = muster_checkpoint_save(checkpoints, &save);
  if (saved == MUSTER_OK)
    std::printf("saved\n");
  else
    std::printf("failed %s %s\n", muster_status_name(saved), muster_last_error());
  std::fflush(stdout);
  expect(muster_checkpoints_close(checkpoints));
  expect(muster_layout_destroy(layout));
  expect(muster_close(session));
  return saved == MUSTER_OK ? 0 : 1;
}
