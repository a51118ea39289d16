#include "daemon/control/node_costs.hpp"

#include "api/base/clock.hpp"
#include "api/base/log.hpp"
#include "daemon/control/job.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#include <sched.h>
#include <nlohmann/json.hpp>

namespace muster::control {
namespace {

constexpr Nanos kMeasureTime = std::chrono::milliseconds(8);
constexpr int kBatches = 5;  // the fastest counts: others were disturbed
constexpr std::size_t kKeptBytesMax = 4096;
// Two processes on a core change their page tables too. Measured: 1,435 ns and 1,100 of two threads.
constexpr double kProcessTurn = 1.3;
constexpr std::uint32_t kMemoryShare = 4;  // memory's rate is a quarter of the caches'

void stay_on(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

struct alignas(128) Word {
  std::atomic<std::uint64_t> value{0};
};

enum class WhileWaiting : std::uint8_t { kLook, kYield };

// Two threads meet over and over, as members do: each writes its word and waits for the other's.
class Pair {
 public:
  Pair(int core, int other, WhileWaiting waiting) : cores_{core, other}, waiting_(waiting) {}

  // Nanoseconds of a meeting in the fastest batch; 0: time ran out.
  double meeting_ns(int meetings, Instant deadline) {
    double best = 0;
    std::thread second([&] { run(1, meetings, deadline, nullptr); });
    std::thread first([&] { run(0, meetings, deadline, &best); });
    first.join();
    second.join();
    return best;
  }

 private:
  void run(std::size_t me, int meetings, Instant deadline, double* best) {
    stay_on(cores_[me]);
    const SteadyClock clock;
    std::uint64_t turn = 0;
    for (int batch = 0; batch < kBatches; ++batch) {
      const Instant begun = clock.now();
      for (int i = 0; i < meetings; ++i)
        if (!meet(me, ++turn, clock, deadline)) return;
      const double each = static_cast<double>((clock.now() - begun).count()) / meetings;
      if (best != nullptr) *best = *best == 0 ? each : std::min(*best, each);
    }
  }
  bool meet(std::size_t me, std::uint64_t turn, const SteadyClock& clock, Instant deadline) {
    words_[me].value.store(turn, std::memory_order_release);
    for (int looks = 1; words_[1 - me].value.load(std::memory_order_acquire) < turn; ++looks) {
      const bool long_wait = looks % 1000 == 0;
      if (waiting_ == WhileWaiting::kYield || long_wait) ::sched_yield();
      if (long_wait && clock.now() >= deadline) return false;
    }
    return true;
  }

  std::array<Word, 2> words_;
  std::array<int, 2> cores_;
  WhileWaiting waiting_;
};

double cached_bytes_per_us() {
  constexpr std::size_t kBytes = 128 << 10;
  constexpr int kCopies = 8;
  std::vector<char> from(kBytes, 1), to(kBytes, 2);
  const SteadyClock clock;
  double best = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    const Instant begun = clock.now();
    for (int i = 0; i < kCopies; ++i) {
      std::memcpy(to.data(), from.data(), kBytes);
      from[0] = to[static_cast<std::size_t>(i)];
    }
    const auto nanos = static_cast<double>(std::max<Nanos::rep>(1, (clock.now() - begun).count()));
    best = std::max(best, 2.0 * kBytes * kCopies * 1000 / nanos);
  }
  return best;
}

std::uint32_t cost_of(double measured, std::uint32_t otherwise) {
  if (measured <= 0) return otherwise;
  return static_cast<std::uint32_t>(std::clamp(measured, 1.0, static_cast<double>(NodeCosts::kMax)));
}

std::vector<int> own_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<unsigned>(core), &set)) cores.push_back(core);
  return cores;
}

// "4 × AMD EPYC 9354": costs of another machine, or of other cores, do not count.
std::string machine_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line))
    if (line.starts_with("model name") || line.starts_with("CPU part"))
      return fmt::format("{} × {}", own_cores().size(),
                         line.substr(std::min(line.size(), line.find(':') + 2)));
  return fmt::format("{} cores", own_cores().size());
}

std::string path_in(const std::string& folder) {
  return folder + "/costs.json";
}

void keep(const NodeCosts& costs, const std::string& folder) {
  const std::string path = path_in(folder);
  const std::string fresh = path + ".new";
  std::ofstream file(fresh, std::ios::trunc);
  file << Json{{"machine", machine_name()}, {"costs", to_json(costs)}}.dump(2) << "\n";
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(fresh, path, error);
  if (!file || error) {
    MUSTER_LOG(kWarning, "supervisor",
               "cannot keep the costs of this node in {}; they will be measured again", path);
    std::filesystem::remove(fresh, error);
  }
}

}  // namespace

NodeCosts measure_node_costs(std::span<const int> cores) {
  NodeCosts costs;
  if (cores.empty()) return costs;
  const SteadyClock clock;
  const Instant deadline = clock.now() + kMeasureTime;
  constexpr int kMeetings = 500;
  constexpr int kTurns = 100;
  if (cores.size() > 1)
    costs.meeting_ns = cost_of(Pair(cores[0], cores[1], WhileWaiting::kLook).meeting_ns(kMeetings, deadline),
                               costs.meeting_ns);
  // Each meets the other by one turn.
  costs.turn_ns =
      cost_of(kProcessTurn * Pair(cores[0], cores[0], WhileWaiting::kYield).meeting_ns(kTurns, deadline),
              costs.turn_ns);
  costs.cached_bytes_per_us = cost_of(cached_bytes_per_us(), costs.cached_bytes_per_us);
  costs.memory_bytes_per_us = std::max(1u, costs.cached_bytes_per_us / kMemoryShare);
  return costs;
}

std::optional<NodeCosts> kept_node_costs(const std::string& folder) {
  std::ifstream file(path_in(folder));
  if (!file) return std::nullopt;
  std::string text(kKeptBytesMax, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("machine", Json()) != Json(machine_name())) return std::nullopt;
  const auto costs = costs_from_json(json.value("costs", Json()));
  return costs ? std::optional(*costs) : std::nullopt;
}

const NodeCosts& NodeCostBook::get() {
  if (known_) return *known_;
  known_ = given_;
  if (known_->sound()) return *known_;
  std::optional<NodeCosts> measured = folder_.empty() ? std::nullopt : kept_node_costs(folder_);
  if (!measured) {
    measured = measure_node_costs(own_cores());
    if (!folder_.empty()) keep(*measured, folder_);
    MUSTER_LOG(kInfo, "control", "measured: a meeting {} ns, a turn {} ns, {} bytes/us within caches",
               measured->meeting_ns, measured->turn_ns, measured->cached_bytes_per_us);
  }
  const auto fill = [](std::uint32_t* cost, std::uint32_t of_node) {
    if (*cost == 0) *cost = of_node;
  };
  fill(&known_->meeting_ns, measured->meeting_ns);
  fill(&known_->turn_ns, measured->turn_ns);
  fill(&known_->cached_bytes_per_us, measured->cached_bytes_per_us);
  fill(&known_->memory_bytes_per_us, std::max(1u, known_->cached_bytes_per_us / kMemoryShare));
  return *known_;
}

}  // namespace muster::control
