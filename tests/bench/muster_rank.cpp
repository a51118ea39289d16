#include "tests/bench/muster_rank.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <muster/kernels.h>

namespace muster::bench {
namespace {

constexpr int kSubmissions = 512;  // half of a session's ring: none of them waits for room

void must(muster_status_t status, const char* what) {
  if (status == MUSTER_OK) return;
  std::fprintf(stderr, "muster: %s: %s: %s\n", what, muster_status_name(status), muster_last_error());
  std::exit(EXIT_FAILURE);
}

struct Memory {
  muster_buffer buffer = 0;
  void* address = nullptr;
};

// Owns    the session, one plan and its two buffers, and the plan by which ranks agree on a number.
// Thread  one.
// Bound   as Contender.
// Fails   as Contender.
class MusterRank final : public Contender {
 public:
  MusterRank() {
    must(muster_open(nullptr, &session_), "muster_open");
    muster_session_info info = MUSTER_SESSION_INFO_INIT;
    must(muster_session_query(session_, &info), "muster_session_query");
    rank_ = info.rank;
    ranks_ = info.world_size;
    must(muster_mesh_group(session_, "world", &group_), "muster_mesh_group");
    number_ = allocate(sizeof(double));
    muster_collective agree = collective(MUSTER_ALL_REDUCE, MUSTER_F64, MUSTER_MAX);
    agree.source = agree.target = {number_.buffer, 0};
    agree.count = 1;
    must(muster_plan_collective(session_, &agree, &agree_), "muster_plan_collective");
  }
  ~MusterRank() override { muster_close(session_); }

  const char* name() const override { return "muster"; }
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  void barrier() override { must(muster_barrier(session_, group_), "muster_barrier"); }

  double maximum(double mine) override {
    auto* number = static_cast<double*>(number_.address);
    *number = mine;
    run(agree_, MUSTER_LANE_SMALL);
    return *number;
  }

  Prepared prepare(const std::string& operation, Extent extent) override {
    release();
    source_ = allocate(extent.source * sizeof(float));
    target_ = allocate(extent.target * sizeof(float));
    muster_lane lane = MUSTER_LANE_ALLREDUCE;
    muster_collective what = collective(MUSTER_ALL_REDUCE, MUSTER_F32, MUSTER_SUM);
    what.count = extent.source;
    if (operation == "all_gather") {
      lane = MUSTER_LANE_GATHER;
      what.op = MUSTER_ALL_GATHER;
      what.redop = 0;
    } else if (operation == "reduce_scatter") {
      lane = MUSTER_LANE_REDUCE;
      what.op = MUSTER_REDUCE_SCATTER;
      what.count = extent.target;
    }
    what.source = {source_.buffer, 0};
    what.target = {target_.buffer, 0};
    must(muster_plan_collective(session_, &what, &plan_), operation.c_str());
    return {{static_cast<float*>(source_.address), extent.source},
            {static_cast<float*>(target_.address), extent.target},
            [this, lane] { run(plan_, lane); }};
  }

  void measure_kernel(const Cells& cells) {
    prepare_kernel();
    print_row(*this, cells, "kernel", 0,
              measure(*this, cells.effort, [this] { run(plan_, MUSTER_LANE_COMPUTE); }));
  }

  // Starts alone are timed; the engine works beside them and is waited for between the samples.
  void measure_submit(const Cells& cells) {
    prepare_kernel();
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_COMPUTE;
    std::vector<double> seconds;
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(cells.effort.seconds);
    while (static_cast<int>(seconds.size()) <= cells.effort.samples ||
           std::chrono::steady_clock::now() < end) {
      muster_point point = 0;
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kSubmissions; ++i)
        must(muster_plan_start(session_, plan_, &submit, &point), "muster_plan_start");
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      must(muster_point_wait(session_, point, -1), "muster_point_wait");
      seconds.push_back(taken.count() / kSubmissions);
    }
    seconds.erase(seconds.begin());  // the first one meets cold memory
    print_row(*this, cells, "submit", 0, timing_of(std::move(seconds)));
  }

 private:
  muster_collective collective(muster_op op, muster_dtype dtype, muster_redop redop) const {
    muster_collective what = MUSTER_COLLECTIVE_INIT;
    what.op = op;
    what.group = group_;
    what.dtype = dtype;
    what.redop = redop;
    return what;
  }

  // The smallest kernel there is: its time is the way to the engine and back.
  void prepare_kernel() {
    release();
    target_ = allocate(sizeof(float));
    const muster_kernel fill = muster_fill(muster_view1(target_.buffer, 0, MUSTER_F32, 1), 1.0);
    must(muster_plan_kernel(session_, &fill, &plan_), "muster_plan_kernel");
  }

  Memory allocate(std::size_t bytes) {
    Memory memory;
    must(muster_buffer_alloc(session_, bytes, &memory.buffer, &memory.address), "muster_buffer_alloc");
    return memory;
  }

  void run(muster_plan plan, muster_lane lane) {
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = lane;
    muster_point point = 0;
    must(muster_plan_start(session_, plan, &submit, &point), "muster_plan_start");
    must(muster_point_wait(session_, point, -1), "muster_point_wait");
  }

  void release() {
    if (plan_ != 0) must(muster_plan_destroy(session_, plan_), "muster_plan_destroy");
    plan_ = 0;
    for (Memory* memory : {&source_, &target_}) {
      if (memory->buffer != 0) must(muster_buffer_free(session_, memory->buffer), "muster_buffer_free");
      *memory = {};
    }
  }

  muster_session* session_ = nullptr;
  int rank_ = 0;
  int ranks_ = 1;
  muster_group group_ = MUSTER_GROUP_SELF;
  Memory number_;
  muster_plan agree_ = 0;
  Memory source_;
  Memory target_;
  muster_plan plan_ = 0;
};

}  // namespace

int run_muster_rank(const Cells& cells) {
  MusterRank rank;
  sweep(rank, cells);
  if (rank.ranks() == 1) {
    if (cells.wants("submit")) rank.measure_submit(cells);
    if (cells.wants("kernel")) rank.measure_kernel(cells);
  }
  return EXIT_SUCCESS;
}

}  // namespace muster::bench
