// A rank of the measurements of overlap on a slow link. It prints one line of JSON, as rank 0.
//
//   overlap_rank reduce BYTES ROUNDS all|one|kernels   an all-reduce behind as much work
//   overlap_rank halo BYTES FACE_BYTES SECONDS [both]  exchanges of two faces, alone, beside an all-gather,
//                                                      and behind it on one lane; both: and a reduce-scatter
//
// Work is arithmetic of each rank (all), of rank 0 alone (one), or kernels of Muster on the compute lane.
#include <muster/kernels.h>
#include <muster/muster.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

namespace muster::bench {
namespace {

constexpr int kWarmUps = 2;
constexpr std::int64_t kRows = 512, kColumns = 256, kInner = 256;  // of a kernel
constexpr int kStepsOfUnit = 50'000;                               // of arithmetic: about 0.1 ms

void must(muster_status_t status, const char* what) {
  if (status == MUSTER_OK) return;
  std::fprintf(stderr, "overlap_rank: %s: %s: %s\n", what, muster_status_name(status), muster_last_error());
  std::exit(EXIT_FAILURE);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Seconds of all cores of the machine that were not idle, since it was started.
double busy_seconds() {
  std::ifstream stat("/proc/stat");
  std::string name;
  double all = 0, value = 0;
  stat >> name;
  for (int column = 0; column < 8 && stat >> value; ++column)
    if (column != 3 && column != 4) all += value;  // idle, and waiting for a disk
  return all / 100;
}

// A chain of arithmetic that no compiler shortens.
double unit_of_work(double seed) {
  for (int step = 0; step < kStepsOfUnit; ++step) seed = seed * 0.999999 + 1e-6;
  return seed;
}

// Owns    the session, its buffers and plans. Thread  one. Bound  one bulk operation at a time.
// Fails   by ending the process, with a sentence.
class OverlapRank {
 public:
  OverlapRank() {
    must(muster_open(nullptr, &session_), "muster_open");
    must(muster_session_query(session_, &me_), "muster_session_query");
    must(muster_mesh_group(session_, "world", &world_), "muster_mesh_group");
    agree_ = collective(MUSTER_ALL_REDUCE, kFiguresMax, MUSTER_F64, MUSTER_MAX, &figures_);
    muster_collective meet = MUSTER_COLLECTIVE_INIT;
    meet.op = MUSTER_BARRIER;
    meet.group = world_;
    must(muster_plan_collective(session_, &meet, &meet_), "the plan of a barrier");
  }
  ~OverlapRank() { muster_close(session_); }
  OverlapRank(const OverlapRank&) = delete;
  OverlapRank& operator=(const OverlapRank&) = delete;

  int rank() const { return me_.rank; }
  bool on_one_node() const { return me_.local_size == me_.world_size; }
  muster_session* session() const { return session_; }

  muster_point start(muster_plan plan, muster_lane lane) {
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = lane;
    muster_point point = MUSTER_POINT_NONE;
    must(muster_plan_start(session_, plan, &submit, &point), "muster_plan_start");
    return point;
  }
  void wait(muster_point point) { must(muster_point_wait(session_, point, -1), "muster_point_wait"); }
  bool is_reached(muster_point point) {
    const muster_status_t status = muster_point_test(session_, point);
    if (status != MUSTER_PENDING) must(status, "muster_point_test");
    return status == MUSTER_OK;
  }
  void barrier() { wait(start(meet_, MUSTER_LANE_SMALL)); }
  // The largest of all ranks, figure by figure; at most kFiguresMax.
  std::vector<double> maxima(std::vector<double> mine) {
    std::copy(mine.begin(), mine.end(), static_cast<double*>(figures_));
    wait(start(agree_, MUSTER_LANE_SMALL));
    std::copy_n(static_cast<double*>(figures_), mine.size(), mine.begin());
    return mine;
  }

  muster_plan all_reduce(std::size_t bytes) {
    return collective(MUSTER_ALL_REDUCE, bytes / sizeof(float), MUSTER_F32, MUSTER_SUM, &bulk_);
  }
  // Each rank has a part of `bytes`.
  muster_plan all_gather(std::size_t bytes) {
    const std::size_t share = bytes / sizeof(float) / static_cast<std::size_t>(me_.world_size);
    muster_collective what = MUSTER_COLLECTIVE_INIT;
    what.op = MUSTER_ALL_GATHER;
    what.group = world_;
    what.dtype = MUSTER_F32;
    what.count = share;
    what.source = {memory(share * sizeof(float), nullptr), 0};
    what.target = {memory(bytes, nullptr), 0};
    return planned(what, "the plan of an all-gather");
  }
  // Likewise: each rank gets a part of `bytes`.
  muster_plan reduce_scatter(std::size_t bytes) {
    const std::size_t share = bytes / sizeof(float) / static_cast<std::size_t>(me_.world_size);
    muster_collective what = MUSTER_COLLECTIVE_INIT;
    what.op = MUSTER_REDUCE_SCATTER;
    what.group = world_;
    what.dtype = MUSTER_F32;
    what.redop = MUSTER_SUM;
    what.count = share;
    what.source = {memory(bytes, nullptr), 0};
    what.target = {memory(share * sizeof(float), nullptr), 0};
    return planned(what, "the plan of a reduce-scatter");
  }
  // With both neighbours on a ring.
  muster_plan exchange(std::size_t bytes) {
    constexpr unsigned kLeft = 1, kRight = 2;
    const int left = (me_.rank + me_.world_size - 1) % me_.world_size;
    const int right = (me_.rank + 1) % me_.world_size;
    const muster_buffer out = memory(2 * bytes, nullptr), in = memory(2 * bytes, nullptr);
    const auto face = [&](int peer, unsigned tag, muster_buffer buffer, std::size_t at) -> muster_face {
      return {peer, tag,
              muster_view1(buffer, at, MUSTER_F32, static_cast<std::int64_t>(bytes / sizeof(float)))};
    };
    const muster_face sends[] = {face(left, kLeft, out, 0), face(right, kRight, out, bytes)};
    const muster_face receives[] = {face(left, kRight, in, 0), face(right, kLeft, in, bytes)};
    muster_collective what = MUSTER_COLLECTIVE_INIT;
    what.op = MUSTER_EXCHANGE;
    what.group = world_;
    what.sends = sends;
    what.receives = receives;
    what.send_count = what.receive_count = 2;
    return planned(what, "the plan of an exchange");
  }
  muster_plan product() {
    const std::uint64_t inputs = (kRows + kColumns) * kInner * sizeof(float);
    const muster_buffer buffer = memory(inputs + kRows * kColumns * sizeof(float), nullptr);
    const muster_kernel kernel = muster_linear_forward(
        muster_view2(buffer, 0, MUSTER_F32, kRows, kInner),
        muster_view2(buffer, kRows * kInner * sizeof(float), MUSTER_F32, kColumns, kInner), muster_none(),
        muster_view2(buffer, inputs, MUSTER_F32, kRows, kColumns));
    muster_plan plan = 0;
    must(muster_plan_kernel(session_, &kernel, &plan), "muster_plan_kernel");
    return plan;
  }

 private:
  static constexpr std::size_t kFiguresMax = 4;

  muster_buffer memory(std::size_t bytes, void** address) {
    muster_buffer buffer = 0;
    void* found = nullptr;
    must(muster_buffer_alloc(session_, bytes, &buffer, &found), "muster_buffer_alloc");
    std::memset(found, 0, bytes);
    if (address != nullptr) *address = found;
    return buffer;
  }
  muster_plan planned(const muster_collective& what, const char* name) {
    muster_plan plan = 0;
    must(muster_plan_collective(session_, &what, &plan), name);
    return plan;
  }
  // In place.
  muster_plan collective(muster_op op, std::size_t count, muster_dtype dtype, muster_redop redop,
                         void** address) {
    muster_collective what = MUSTER_COLLECTIVE_INIT;
    what.op = op;
    what.group = world_;
    what.dtype = dtype;
    what.redop = redop;
    what.count = count;
    what.source = what.target = {memory(count * (dtype == MUSTER_F64 ? 8 : 4), address), 0};
    return planned(what, "the plan of a reduction");
  }

  muster_session* session_ = nullptr;
  muster_session_info me_ = MUSTER_SESSION_INFO_INIT;
  muster_group world_ = 0;
  muster_plan agree_ = 0, meet_ = 0;
  void* figures_ = nullptr;
  void* bulk_ = nullptr;
};

// ---- an all-reduce behind work -----------------------------------------------------------------

// Seconds of the slowest rank, and core seconds of the machine meanwhile.
struct Timed {
  double seconds = 0, busy = 0;
};

class BehindWork {
 public:
  BehindWork(OverlapRank& rank, std::size_t bytes, const std::string& work)
      : rank_(rank), reduce_(rank.all_reduce(bytes)), works_(work != "one" || rank.rank() == 0) {
    if (work == "kernels") product_ = rank.product();
  }

  nlohmann::json measure(int rounds) {
    for (int i = 0; i < kWarmUps; ++i) timed([&] { rank_.wait(begin()); });
    calibrate(timed([&] { rank_.wait(begin()); }).seconds);
    std::vector<double> overlaps, alone, work, both;
    double busy_alone = 0, busy_work = 0, busy_both = 0;
    for (int round = 0; round < rounds; ++round) {
      const Timed c = timed([&] { rank_.wait(begin()); });
      const Timed w = timed([&] { run(units_); });
      const Timed b = timed([&] {
        const muster_point reduced = begin();
        run(units_);
        rank_.wait(reduced);
      });
      overlaps.push_back(1 - (b.seconds - std::max(c.seconds, w.seconds)) / std::min(c.seconds, w.seconds));
      alone.push_back(c.seconds);
      work.push_back(w.seconds);
      both.push_back(b.seconds);
      busy_alone += c.busy / rounds;
      busy_work += w.busy / rounds;
      busy_both += b.busy / rounds;
    }
    return {{"overlap", median(overlaps)}, {"overlaps", overlaps},     {"alone_s", median(alone)},
            {"work_s", median(work)},      {"both_s", median(both)},   {"alone_core_s", busy_alone},
            {"work_core_s", busy_work},    {"both_core_s", busy_both}, {"rounds", rounds}};
  }

 private:
  muster_point begin() { return rank_.start(reduce_, MUSTER_LANE_ALLREDUCE); }
  void run(int units) {
    if (!works_) return;
    muster_point last = MUSTER_POINT_NONE;
    for (int unit = 0; unit < units; ++unit) {
      if (product_ != 0)
        last = rank_.start(product_, MUSTER_LANE_COMPUTE);
      else
        result_ = unit_of_work(result_.load());
    }
    rank_.wait(last);
  }
  Timed timed(const std::function<void()>& what) {
    rank_.barrier();
    const double busy = busy_seconds(), begin = now();
    what();
    const double mine = now() - begin;
    const double slowest = rank_.maxima({mine}).front();
    return {slowest, busy_seconds() - busy};
  }
  // As many units as take so long. All ranks use the same number.
  void calibrate(double seconds) {
    units_ = 16;
    for (int look = 0; look < 4; ++look) {
      const double took = std::max(1e-6, timed([&] { run(units_); }).seconds);
      units_ = std::max(1, static_cast<int>(std::lround(units_ * std::clamp(seconds / took, 0.1, 64.0))));
    }
  }

  OverlapRank& rank_;
  const muster_plan reduce_;
  const bool works_;
  muster_plan product_ = 0;
  int units_ = 0;
  std::atomic<double> result_{1};
};

// ---- an urgent exchange behind bulk ------------------------------------------------------------

class BehindBulk {
 public:
  BehindBulk(OverlapRank& rank, std::size_t bytes, std::size_t face_bytes, bool both)
      : rank_(rank),
        bulk_{{rank.all_gather(bytes), MUSTER_LANE_GATHER}},
        exchange_(rank.exchange(face_bytes)) {
    if (both) bulk_.push_back({rank.reduce_scatter(bytes), MUSTER_LANE_REDUCE});
  }

  nlohmann::json measure(double seconds) {
    exchange_for(0.1, [] { return false; });
    const std::vector<double> alone = exchange_for(seconds, [] { return false; });
    std::vector<double> beside, bulk, one_lane;
    for_rounds(2 * seconds, [&] {
      const double begin = now();
      std::vector<muster_point> points;
      for (const Bulk& each : bulk_) points.push_back(rank_.start(each.plan, each.lane));
      let_it_fill();
      const auto one_is_over = [&] {
        return std::any_of(points.begin(), points.end(), [&](auto point) { return rank_.is_reached(point); });
      };
      const auto found = exchange_for(60, one_is_over);
      beside.insert(beside.end(), found.begin(), found.end());
      for (const muster_point point : points) rank_.wait(point);
      bulk.push_back(now() - begin);
    });
    for_rounds(seconds, [&] {
      for (const Bulk& each : bulk_) rank_.start(each.plan, MUSTER_LANE_GATHER);
      let_it_fill();
      const double begin = now();
      rank_.wait(rank_.start(exchange_, MUSTER_LANE_GATHER));
      one_lane.push_back(now() - begin);
    });
    return {{"alone_us", figures(alone)},
            {"behind_us", figures(beside)},
            {"one_lane_us", figures(one_lane)},
            {"bulk_s", median(bulk)}};
  }

 private:
  // Until the link is full; on one node there is none, and the bulk is over soon.
  void let_it_fill() const {
    std::this_thread::sleep_for(std::chrono::milliseconds(rank_.on_one_node() ? 1 : 20));
  }
  // Until the time is over on some rank.
  void for_rounds(double seconds, const std::function<void()>& round) {
    const double end = now() + seconds;
    for (bool goes_on = true; goes_on; goes_on = rank_.maxima({now() < end ? 1.0 : 0.0}).front() > 0) {
      rank_.barrier();
      round();
    }
  }
  // Exchanges until the time is over on some rank, or `over` returns true there. Returns this rank's wait in
  // each exchange, without the last one.
  std::vector<double> exchange_for(double seconds, const std::function<bool()>& over) {
    std::vector<double> took;
    const double end = now() + seconds;
    while (true) {
      rank_.barrier();
      const double begin = now();
      rank_.wait(rank_.start(exchange_, MUSTER_LANE_HALO));
      const double mine = now() - begin;
      if (rank_.maxima({now() > end || over() ? 1.0 : 0.0}).front() > 0) return took;
      took.push_back(mine);
    }
  }
  static nlohmann::json figures(std::vector<double> seconds) {
    std::sort(seconds.begin(), seconds.end());
    const auto at = [&](double part) {
      const auto last = static_cast<double>(seconds.size()) - 1;
      return seconds.empty() ? 0.0 : 1e6 * seconds[static_cast<std::size_t>(part * last)];
    };
    return {{"median", at(0.5)}, {"p99", at(0.99)}, {"most", at(1)}, {"count", seconds.size()}};
  }

  OverlapRank& rank_;
  struct Bulk {
    muster_plan plan;
    muster_lane lane;
  };
  std::vector<Bulk> bulk_;
  const muster_plan exchange_;
};

int run(const std::vector<std::string>& words) {
  const bool both = words.size() == 5 && words[0] == "halo" && words[4] == "both";
  if ((words.size() != 4 && !both) || (words[0] != "reduce" && words[0] != "halo")) {
    std::fputs("overlap_rank is started by bench/overlap\n", stderr);
    return EXIT_FAILURE;
  }
  OverlapRank rank;
  const auto bytes = static_cast<std::size_t>(std::stoull(words[1]));
  nlohmann::json found;
  if (words[0] == "reduce")
    found = BehindWork(rank, bytes, words[3]).measure(std::stoi(words[2]));
  else
    found = BehindBulk(rank, bytes, std::stoull(words[2]), both).measure(std::stod(words[3]));
  if (rank.rank() == 0) std::printf("%s\n", found.dump().c_str());
  rank.barrier();
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  return muster::bench::run({argv + 1, argv + argc});
}
