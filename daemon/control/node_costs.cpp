#include "daemon/control/node_costs.hpp"

#include "api/base/clock.hpp"
#include "api/base/log.hpp"
#include "api/shm/descriptor.hpp"
#include "daemon/control/job.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>
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

  // Nanoseconds of a meeting in the fastest batch; 0: time ran out before the first batch was done, or there
  // was no thread to be had.
  double meeting_ns(int meetings, Instant deadline) {
    double best = 0;
    try {
      const std::jthread second([&] { run(1, meetings, deadline, nullptr); });
      const std::jthread first([&] { run(0, meetings, deadline, &best); });
    } catch (const std::system_error&) {
      return 0;
    }
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
      if (waiting_ == WhileWaiting::kLook && looks % 1000 != 0) continue;
      ::sched_yield();
      if (clock.now() >= deadline) return false;
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

// `costs`, and from `others` what is 0 in it.
NodeCosts filled(const NodeCosts& costs, const NodeCosts& others) {
  const auto either = [](std::uint32_t cost, std::uint32_t other) { return cost == 0 ? other : cost; };
  NodeCosts all;
  all.meeting_ns = either(costs.meeting_ns, others.meeting_ns);
  all.turn_ns = either(costs.turn_ns, others.turn_ns);
  all.cached_bytes_per_us = either(costs.cached_bytes_per_us, others.cached_bytes_per_us);
  // The rate within caches decides it, also where that was given.
  const std::uint32_t share = std::max(1u, all.cached_bytes_per_us / kMemoryShare);
  all.memory_bytes_per_us = either(costs.memory_bytes_per_us, all.cached_bytes_per_us == 0 ? 0 : share);
  return all;
}

// 0: not measured.
std::uint32_t cost_of(double measured) {
  if (measured <= 0) return 0;
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

// "4 × AMD EPYC 9354": costs of another machine do not count.
std::string machine_name() {
  const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line))
    if (line.starts_with("model name") || line.starts_with("CPU part"))
      return fmt::format("{} × {}", cores, line.substr(std::min(line.size(), line.find(':') + 2)));
  return fmt::format("{} cores", cores);
}

std::string path_in(const std::string& folder) {
  return folder + "/costs.json";
}

// The file's text, if it is a plain file of root or of this user: others could put anything there.
std::optional<std::string> text_of(const std::string& path) {
  const shm::Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat found {};
  if (!file.valid() || ::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode)) return std::nullopt;
  if (found.st_uid != 0 && found.st_uid != ::geteuid()) return std::nullopt;
  std::string text(kKeptBytesMax, '\0');
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, size)));
  return text;
}

bool write_new(const std::string& path, const std::string& text) {
  ::unlink(path.c_str());
  const shm::Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  return file.valid() && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

void keep(const NodeCostBook::Kept& costs, const std::string& folder) {
  const std::string path = path_in(folder);
  const std::string fresh = path + ".new";
  Json json{{"machine", machine_name()}, {"used", to_json(costs.used)}};
  if (costs.measured) json["measured"] = to_json(*costs.measured);
  if (write_new(fresh, json.dump(2) + "\n") && ::rename(fresh.c_str(), path.c_str()) == 0) return;
  MUSTER_LOG(kWarning, "control", "cannot keep the costs of this node in {}; they will be measured again",
             path);
  ::unlink(fresh.c_str());
}

}  // namespace

NodeCosts measure_node_costs(std::span<const int> cores) {
  NodeCosts costs{0, 0, 0, 0};
  if (cores.empty()) return costs;
  const SteadyClock clock;
  const Instant deadline = clock.now() + kMeasureTime;
  constexpr int kMeetings = 500;
  constexpr int kTurns = 100;
  if (cores.size() > 1)
    costs.meeting_ns = cost_of(Pair(cores[0], cores[1], WhileWaiting::kLook).meeting_ns(kMeetings, deadline));
  // Each meets the other by one turn.
  costs.turn_ns =
      cost_of(kProcessTurn * Pair(cores[0], cores[0], WhileWaiting::kYield).meeting_ns(kTurns, deadline));
  costs.cached_bytes_per_us = cost_of(cached_bytes_per_us());
  costs.memory_bytes_per_us = std::max(1u, costs.cached_bytes_per_us / kMemoryShare);
  return costs;
}

NodeCosts measure_node_costs() {
  return measure_node_costs(own_cores());
}

std::optional<NodeCostBook::Kept> kept_node_costs(const std::string& folder) {
  const auto text = text_of(path_in(folder));
  if (!text) return std::nullopt;
  const Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object() || json.value("machine", Json()) != Json(machine_name())) return std::nullopt;
  const auto used = costs_from_json(json.value("used", Json()));
  const auto measured = costs_from_json(json.value("measured", Json()));
  if (!used) return std::nullopt;
  return NodeCostBook::Kept{*used, measured ? std::optional(*measured) : std::nullopt};
}

const NodeCosts& NodeCostBook::get() {
  if (known_) return *known_;
  const auto kept = folder_.empty() ? std::nullopt : kept_node_costs(folder_);
  Kept costs{given_, kept ? kept->measured : std::nullopt};
  if (!given_.sound() && !costs.measured) {
    NodeCosts fresh = measure_();
    // The file keeps only complete measurements: a busy machine may have left some costs unmeasured.
    if (fresh.sound()) costs.measured = fresh;
    costs.used = filled(filled(given_, fresh), NodeCosts{});
    MUSTER_LOG(kInfo, "control", "{}: a meeting {} ns, a turn {} ns, {} bytes/us within caches",
               fresh.sound() ? "measured" : "the machine is too busy to measure all, so it is taken for",
               costs.used.meeting_ns, costs.used.turn_ns, costs.used.cached_bytes_per_us);
  } else {
    costs.used = filled(given_, costs.measured.value_or(given_));
  }
  if (!folder_.empty() && kept != costs) keep(costs, folder_);
  known_ = costs.used;
  return *known_;
}

}  // namespace muster::control
