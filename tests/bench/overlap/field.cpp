// A rank of layers of convolutions on a field that is cut into rows of two ranks, on a slow link. It prints
// one line of JSON, as rank 0.
//
//   field_rank ROWS COLUMNS CHANNELS LAYERS ROUNDS ADDRESS       ROWS: of a rank. ADDRESS: of rank 0
//
// The layers run with a halo each (shallow), and with one halo of as many rows for all (deep); and with the
// halo beside the interior (step), or before all kernels (apart). Both give the same numbers, which is
// checked. Once more with as many bytes by a plain socket beside the interior (sockets): the floor of a step.
#include "tests/bench/overlap/wire.hpp"

#include <muster/field_kernels.h>
#include <muster/halo.h>
#include <muster/kernels.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace muster::bench {
namespace {

constexpr std::int64_t kKernel = 3, kPad = 1;
constexpr double kTolerance = 1e-5;

void must(muster_status_t status) {
  if (status == MUSTER_OK) return;
  std::fprintf(stderr, "field_rank: %s: %s\n", muster_status_name(status), muster_last_error());
  std::exit(EXIT_FAILURE);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct Sizes {
  std::int64_t rows, columns, channels, layers;
};

// Rows [first, first + count) of the field.
struct Rows {
  std::int64_t first = 0, count = 0;
  std::int64_t end() const { return first + count; }
};

// Owns    the session, its buffers and plans. Thread  one. Bound  -
// Fails   by ending the process, with a sentence.
class FieldRank {
 public:
  FieldRank(const Sizes& sizes, const std::string& address) : sizes_(sizes) {
    must(muster_open(nullptr, &session_));
    must(muster_session_query(session_, &me_));
    must(muster_mesh_group(session_, "world", &world_));
    if (me_.world_size != 2) {
      std::fprintf(stderr, "field_rank: it takes two ranks, not %d\n", me_.world_size);
      std::exit(EXIT_FAILURE);
    }
    own_ = {me_.rank * sizes.rows, sizes.rows};
    const std::int64_t weights = sizes.channels * kKernel * kKernel * sizes.channels;
    float* const values = memory(weights, &w_);
    const double scale = std::sqrt(1.0 / static_cast<double>(kKernel * kKernel * sizes.channels));
    for (std::int64_t i = 0; i < weights; ++i)
      values[i] = static_cast<float>(scale * std::sin(static_cast<double>(i)));
    figure_ = reinterpret_cast<double*>(memory(sizeof(double) / sizeof(float), &figure_buffer_));
    muster_collective meet = MUSTER_COLLECTIVE_INIT;
    meet.op = MUSTER_ALL_REDUCE;
    meet.group = world_;
    meet.dtype = MUSTER_F64;
    meet.redop = MUSTER_MAX;
    meet.count = 1;
    meet.source = meet.target = {figure_buffer_, 0};
    must(muster_plan_collective(session_, &meet, &meet_));
    wire_ = std::make_unique<Wire>(me_.rank, address);
    most(0);  // rank 0 listens
    wire_->connect();
  }
  ~FieldRank() { muster_close(session_); }
  FieldRank(const FieldRank&) = delete;
  FieldRank& operator=(const FieldRank&) = delete;

  const Sizes& sizes() const { return sizes_; }
  int rank() const { return me_.rank; }
  Rows own() const { return own_; }
  Wire& wire() const { return *wire_; }
  muster_session* session() const { return session_; }
  muster_group world() const { return world_; }

  // Rows of the field with their channels, filled by a formula of each element's place.
  struct Array {
    Rows rows;
    float* values = nullptr;
    muster_tensor of_kernel{}, of_halo{};
  };
  Array array(Rows rows) {
    Array made;
    made.rows = rows;
    muster_buffer buffer = 0;
    const std::int64_t row = sizes_.columns * sizes_.channels;
    made.values = memory(rows.count * row, &buffer);
    for (std::int64_t i = 0; i < rows.count * row; ++i)
      made.values[i] = static_cast<float>(std::cos(0.37 * static_cast<double>(rows.first * row + i)));
    made.of_kernel = muster_view4(buffer, 0, MUSTER_F32, 1, rows.count, sizes_.columns, sizes_.channels);
    made.of_halo = muster_view3(buffer, 0, MUSTER_F32, rows.count, sizes_.columns, sizes_.channels);
    return made;
  }
  muster_plan layer(const Array& x, const Array& y, Rows rows) {
    muster_convolution c = MUSTER_CONVOLUTION_INIT;
    c.before[0] = c.before[1] = kPad;
    c.x_offset[0] = x.rows.first;
    c.y_offset[0] = y.rows.first;
    c.offset[0] = rows.first;
    c.length[0] = rows.count;
    c.length[1] = sizes_.columns;
    const muster_tensor w =
        muster_view4(w_, 0, MUSTER_F32, sizes_.channels, kKernel, kKernel, sizes_.channels);
    const muster_kernel kernel = muster_convolution_forward(&c, x.of_kernel, w, muster_none(), y.of_kernel);
    muster_plan plan = 0;
    must(muster_plan_kernel(session_, &kernel, &plan));
    return plan;
  }
  void wait(muster_point point) { must(muster_point_wait(session_, point, -1)); }
  // Behind the kernels before it.
  muster_point start(muster_plan plan) {
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_COMPUTE;
    muster_point done = MUSTER_POINT_NONE;
    must(muster_plan_start(session_, plan, &submit, &done));
    return done;
  }
  // Seconds of the slower rank.
  double timed(const std::function<void()>& what) {
    most(0);
    const double begin = now();
    what();
    return most(now() - begin);
  }
  double most(double figure) {
    *figure_ = figure;
    must(muster_plan_run(session_, meet_, 0));
    return *figure_;
  }

 private:
  float* memory(std::int64_t floats, muster_buffer* buffer) {
    void* address = nullptr;
    must(muster_buffer_alloc(session_, static_cast<std::uint64_t>(floats) * sizeof(float), buffer, &address));
    return static_cast<float*>(address);
  }

  Sizes sizes_;
  muster_session* session_ = nullptr;
  muster_session_info me_ = MUSTER_SESSION_INFO_INIT;
  muster_group world_ = 0;
  Rows own_;
  muster_buffer w_ = 0, figure_buffer_ = 0;
  muster_plan meet_ = 0;
  double* figure_ = nullptr;
  std::unique_ptr<Wire> wire_;
};

// ---- a halo and the layers behind it -----------------------------------------------------------

// `depth` layers behind one halo. With depth 1 the result has the rows that the next halo takes.
class Stage {
 public:
  Stage(FieldRank& rank, std::int64_t depth, const FieldRank::Array& from, bool ends)
      : rank_(rank), stencil_(stencil_of(rank, depth)), from_(from) {
    const FieldRank::Array* x = &from_;
    arrays_.reserve(static_cast<std::size_t>(depth));
    for (std::int64_t layer = 1; layer <= depth; ++layer) {
      const bool last = layer == depth;
      const Rows computed = last ? rank.own() : between(layer - 1);
      arrays_.push_back(rank.array(last && !ends ? from.rows : computed));
      const FieldRank::Array& y = arrays_.back();
      Rows inside = rank.own();  // from own rows alone: the cut is at one end
      inside.count -= layer;
      if (rank.rank() == 1) inside.first += layer;
      const Rows outside = rank.rank() == 0 ? Rows{inside.end(), computed.end() - inside.end()}
                                            : Rows{computed.first, inside.first - computed.first};
      interior_.push_back(rank.layer(*x, y, inside));
      boundary_.push_back(rank.layer(*x, y, outside));
      whole_.push_back(rank.layer(*x, y, computed));
      x = &y;
    }
  }
  ~Stage() { must(muster_stencil_destroy(stencil_)); }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  const FieldRank::Array& result() const { return arrays_.back(); }
  const std::vector<muster_plan>& interior() const { return interior_; }
  const std::vector<muster_plan>& boundary() const { return boundary_; }
  const std::vector<muster_plan>& whole() const { return whole_; }
  static Rows held(const FieldRank& rank, std::int64_t depth) {
    return {rank.own().first - (rank.rank() == 1 ? depth : 0), rank.own().count + depth};
  }
  // The halo, with these kernels or with none.
  muster_halo add(muster_halos* halos, const std::string& name, bool with_kernels) const {
    muster_halo_options options = MUSTER_HALO_OPTIONS_INIT;
    options.name = name.c_str();
    options.stencil = stencil_;
    options.held = from_.of_halo;
    if (with_kernels) {
      const auto count = static_cast<std::uint32_t>(interior_.size());
      options.forward = {interior_.data(), boundary_.data(), count, count};
    }
    muster_halo halo = 0;
    must(muster_halo_create(halos, &options, &halo));
    return halo;
  }

 private:
  static muster_stencil* stencil_of(const FieldRank& rank, std::int64_t depth) {
    muster_layout_options field = MUSTER_LAYOUT_OPTIONS_INIT;
    field.dims = 3;
    field.shape[0] = 2 * rank.sizes().rows;
    field.shape[1] = rank.sizes().columns;
    field.shape[2] = rank.sizes().channels;
    field.axis_count = 1;
    field.axes[0].ranks = 2;
    field.axes[0].placement = MUSTER_SHARD;
    muster_layout* layout = nullptr;
    must(muster_layout_create(nullptr, &field, &layout));
    std::vector<muster_window> windows;
    for (std::int64_t layer = 0; layer < depth; ++layer) {
      const muster_window window = muster_window_convolution(kKernel, 1, 1, kPad, kPad, MUSTER_PAD_ZEROS);
      windows.insert(windows.end(), {window, window, MUSTER_WINDOW_INIT});
    }
    muster_stencil_options options = MUSTER_STENCIL_OPTIONS_INIT;
    options.layers = static_cast<std::uint32_t>(depth);
    options.layout = layout;
    options.windows = windows.data();
    muster_stencil* stencil = nullptr;
    must(muster_stencil_create(&options, &stencil));
    must(muster_layout_destroy(layout));
    return stencil;
  }
  // The rows of a layer that the next one reads.
  Rows between(std::int64_t layer) const {
    muster_halo_box box{};
    std::size_t count = 0;
    must(muster_stencil_boxes(stencil_, rank_.rank(), static_cast<std::int32_t>(layer), &box, 1, &count));
    return {box.offset[0], box.length[0]};
  }

  FieldRank& rank_;
  muster_stencil* stencil_;
  const FieldRank::Array& from_;
  std::vector<FieldRank::Array> arrays_;
  std::vector<muster_plan> interior_, boundary_, whole_;
};

// All layers: in stages of `depth`.
class Layers {
 public:
  Layers(FieldRank& rank, std::int64_t depth)
      : rank_(rank), depth_(depth), first_(rank.array(Stage::held(rank, depth))) {
    const std::int64_t stages = rank.sizes().layers / depth;
    muster_halos_options set = MUSTER_HALOS_OPTIONS_INIT;
    set.group = rank.world();
    const std::string name = depth == 1 ? "shallow" : "deep";
    set.name = name.c_str();
    must(muster_halos_create(rank.session(), &set, &halos_));
    const FieldRank::Array* from = &first_;
    for (std::int64_t i = 0; i < stages; ++i) {
      const Stage& stage =
          *stages_.emplace_back(std::make_unique<Stage>(rank, depth, *from, i + 1 == stages));
      with_kernels_.push_back(stage.add(halos_, "beside " + std::to_string(i), true));
      without_.push_back(stage.add(halos_, "before " + std::to_string(i), false));
      from = &stage.result();
    }
  }
  ~Layers() { must(muster_halos_destroy(halos_)); }
  Layers(const Layers&) = delete;
  Layers& operator=(const Layers&) = delete;

  void beside() {
    muster_point done = MUSTER_POINT_NONE;
    for (const muster_halo halo : with_kernels_) must(muster_halo_forward(halos_, halo, done, &done));
    rank_.wait(done);
  }
  void apart() {
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      exchange(i);
      run(stages_[i]->whole());
    }
  }
  // A plain socket in the place of the halos; the numbers are not the right ones.
  void beside_sockets() {
    const std::int64_t bytes =
        depth_ * rank_.sizes().columns * rank_.sizes().channels * std::int64_t{sizeof(float)};
    for (const auto& stage : stages_) {
      start(stage->interior());
      rank_.wire().exchange(static_cast<std::size_t>(bytes));
      run(stage->boundary());
    }
  }
  void exchange() {
    for (std::size_t i = 0; i < stages_.size(); ++i) exchange(i);
  }
  void interior() {
    for (const auto& stage : stages_) run(stage->interior());
  }
  void boundary() {
    for (const auto& stage : stages_) run(stage->boundary());
  }
  // The last layer's own rows.
  std::vector<float> result() const {
    const FieldRank::Array& last = stages_.back()->result();
    const std::int64_t row = rank_.sizes().columns * rank_.sizes().channels;
    const float* const begin = last.values + (rank_.own().first - last.rows.first) * row;
    return {begin, begin + rank_.own().count * row};
  }
  nlohmann::json measure(int rounds) {
    std::vector<std::vector<double>> took(6);
    for (int round = -1; round < rounds; ++round) {
      const double now[] = {rank_.timed([this] { interior(); }), rank_.timed([this] { boundary(); }),
                            rank_.timed([this] { exchange(); }), rank_.timed([this] { apart(); }),
                            rank_.timed([this] { beside(); }),   rank_.timed([this] { beside_sockets(); })};
      for (std::size_t i = 0; round >= 0 && i < took.size(); ++i) took[i].push_back(now[i]);
    }
    return {{"interior_s", median(took[0])}, {"boundary_s", median(took[1])}, {"halo_s", median(took[2])},
            {"apart_s", median(took[3])},    {"step_s", median(took[4])},     {"sockets_s", median(took[5])}};
  }

 private:
  void exchange(std::size_t stage) {
    muster_point done = MUSTER_POINT_NONE;
    must(muster_halo_forward(halos_, without_[stage], MUSTER_POINT_NONE, &done));
    rank_.wait(done);
  }
  muster_point start(const std::vector<muster_plan>& plans) {
    muster_point done = MUSTER_POINT_NONE;
    for (const muster_plan plan : plans) done = rank_.start(plan);
    return done;
  }
  void run(const std::vector<muster_plan>& plans) { rank_.wait(start(plans)); }

  FieldRank& rank_;
  const std::int64_t depth_;
  const FieldRank::Array first_;
  muster_halos* halos_ = nullptr;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<muster_halo> with_kernels_, without_;
};

double difference(const std::vector<float>& one, const std::vector<float>& other) {
  double most = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    most = std::max(most, std::isfinite(one[i]) && std::isfinite(other[i])
                              ? std::abs(static_cast<double>(one[i]) - static_cast<double>(other[i]))
                              : 1e30);
  return most;
}

int run(const std::vector<std::int64_t>& words, const std::string& address) {
  FieldRank rank({words[0], words[1], words[2], words[3]}, address);
  Layers shallow(rank, 1), deep(rank, words[3]);
  shallow.beside();
  deep.beside();
  const std::vector<float> right = shallow.result();
  double most = difference(right, deep.result());
  shallow.apart();
  most = std::max(most, difference(right, shallow.result()));
  most = rank.most(most);
  if (most > kTolerance) {
    std::fprintf(stderr, "field_rank: the ways differ by %g\n", most);
    return EXIT_FAILURE;
  }
  nlohmann::json said{{"layers", words[3]}, {"difference", most}};
  said["shallow"] = shallow.measure(static_cast<int>(words[4]));
  said["deep"] = deep.measure(static_cast<int>(words[4]));
  if (rank.rank() == 0) std::printf("%s\n", said.dump().c_str());
  rank.most(0);  // a rank that leaves would end what the other waits for
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  std::vector<std::int64_t> words;
  for (int i = 1; i + 1 < argc; ++i) words.push_back(std::strtoll(argv[i], nullptr, 10));
  if (words.size() != 5 || *std::min_element(words.begin(), words.end()) < 1 || words[0] <= words[3]) {
    std::fputs("field_rank is started by bench/overlap\n", stderr);
    return EXIT_FAILURE;
  }
  return muster::bench::run(words, argv[argc - 1]);
}
