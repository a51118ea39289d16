// A rank whose calls are counted: rank 0 of a job runs under callgrind. Its peers run without it, so they
// come before rank 0. Callgrind writes one file for each counted call.
//
//   counted_rank barrier|all_reduce|start|start_on_lane_63|start_with_offsets OUT
#include <muster/muster.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <unistd.h>
#include <valgrind/callgrind.h>

namespace {

constexpr int kWarmCalls = 20;
constexpr int kCalls = 60;
constexpr int kCallsBetween = 10;
constexpr std::int64_t kLongNs = 60'000'000'000;

void check(muster_status_t status) {
  if (status == MUSTER_OK) return;
  std::fprintf(stderr, "%s: %s\n", muster_status_name(status), muster_last_error());
  std::exit(1);
}

// Ends the program with valgrind, if that cannot be had.
void run_under_callgrind(char** argv) {
  const std::string out = std::string("--callgrind-out-file=") + argv[2];
  execlp("valgrind", "valgrind", "-q", "--tool=callgrind", "--collect-atstart=no",
         "--toggle-collect=muster_plan_run", "--toggle-collect=muster_plan_start",
         // The doorbell's own instructions are left out: whether the engine sleeps is chance.
         "--toggle-collect=muster::client::Submission::ring_doorbell()", out.c_str(), argv[0], argv[1],
         argv[2], nullptr);
  std::perror("valgrind");
  std::exit(1);
}

// An operation of all ranks, made once and called over and over.
class Calls {
 public:
  explicit Calls(const std::string& what)
      : started_(what.starts_with("start")), moves_(what == "start_with_offsets") {
    check(muster_open(nullptr, &session_));
    if (what == "start_on_lane_63")
      while (lane_ < MUSTER_LANES_MAX - 1)
        check(muster_lane_create(session_, MUSTER_LANE_SMALL, std::to_string(lane_ + 1).c_str(), &lane_));
    muster_collective said = MUSTER_COLLECTIVE_INIT;
    check(muster_mesh_group(session_, "world", &said.group));
    said.op = MUSTER_BARRIER;
    if (what == "all_reduce" || moves_) {
      void* address = nullptr;
      check(muster_buffer_alloc(session_, 4096, &said.source.buffer, &address));
      std::memset(address, 0, 4096);
      said.op = MUSTER_ALL_REDUCE;
      said.dtype = MUSTER_F32;
      said.redop = MUSTER_SUM;
      said.target = {said.source.buffer, 2048};
      said.count = 2;
    }
    check(muster_plan_collective(session_, &said, &plan_));
  }
  void call() {
    if (!started_) return check(muster_plan_run(session_, plan_, 0));
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = lane_;
    if (moves_) {
      submit.flags = MUSTER_SUBMIT_OFFSETS;
      submit.source_offset_bytes = offset_ = 1024 - offset_;
      submit.target_offset_bytes = 2048;
    }
    muster_point point = MUSTER_POINT_NONE;
    check(muster_plan_start(session_, plan_, &submit, &point));
    check(muster_point_wait(session_, point, kLongNs));
  }
  void close() { check(muster_close(session_)); }

 private:
  bool started_;
  bool moves_;
  std::uint64_t offset_ = 0;
  muster_lane lane_ = MUSTER_LANE_SMALL;
  muster_session* session_ = nullptr;
  muster_plan plan_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const char* rank = std::getenv("MUSTER_RANK");
  const bool counted = rank != nullptr && std::string(rank) == "0";
  if (counted && !RUNNING_ON_VALGRIND) run_under_callgrind(argv);
  Calls calls(argv[1]);
  for (int i = 0; i < kWarmCalls + kCalls; ++i) {
    // Peers sleep while a file is written. After a few calls in a row they are awake, and there first.
    for (int k = 0; k < kCallsBetween; ++k) calls.call();
    CALLGRIND_ZERO_STATS;
    calls.call();
    if (i >= kWarmCalls) CALLGRIND_DUMP_STATS;
  }
  calls.close();
}
