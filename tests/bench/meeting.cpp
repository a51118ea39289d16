#include "tests/bench/meeting.hpp"

#include "tests/bench/measure.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <thread>

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::bench {
namespace {

constexpr int kLooks = 5;
constexpr int kBatches = 100;  // so short that some of them meet nobody else on the core
constexpr int kExchanges = 200;
constexpr int kMeetings = 20;
constexpr int kWakes = 9;
constexpr int kLooksBeforeYield = 4096;
constexpr std::chrono::milliseconds kSleep{3};

struct alignas(64) Line {
  std::atomic<std::uint32_t> value{0};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "shared between processes");

// Memory that the processes of one measurement share; it starts as zeros.
struct Board {
  Line ready;
  Line turn;
  Line epoch;
  double seconds = 0.0;
  double came = 0.0;
};

struct Unmap {
  void operator()(Board* board) const { munmap(board, sizeof *board); }
};
using SharedBoard = std::unique_ptr<Board, Unmap>;

SharedBoard shared_board() {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return SharedBoard(new (memory) Board);
}

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// One process for each entry, on that core; they begin together. Returns when all have ended.
void together(const std::vector<int>& cores, Board& board, const std::function<void(int mine)>& work) {
  const auto all = static_cast<std::uint32_t>(cores.size());
  std::vector<pid_t> processes;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    const pid_t process = fork();
    if (process < 0) std::abort();
    if (process == 0) {
      pin(cores[i]);
      board.ready.value.fetch_add(1);
      while (board.ready.value.load() < all) sched_yield();
      work(static_cast<int>(i));
      _exit(EXIT_SUCCESS);
    }
    processes.push_back(process);
  }
  for (const pid_t process : processes) {
    int state = 0;
    while (waitpid(process, &state, 0) < 0 && errno == EINTR) {
    }
  }
}

double best_of(int looks, const std::vector<int>& cores,
               const std::function<void(Board& board, int mine)>& work) {
  double best = std::numeric_limits<double>::max();
  for (int look = 0; look < looks; ++look) {
    const SharedBoard board = shared_board();
    together(cores, *board, [&](int mine) { work(*board, mine); });
    best = std::min(best, board->seconds);
  }
  return best;
}

// Two processes write the line in turn.
void exchange_line(Board& board, int mine) {
  double best = std::numeric_limits<double>::max();
  auto exchange = static_cast<std::uint32_t>(mine);
  for (int batch = 0; batch < kBatches; ++batch) {
    const double begin = now();
    for (int i = 0; i < kExchanges; ++i, exchange += 2) {
      for (int looks = 1; board.turn.value.load(std::memory_order_acquire) != exchange; ++looks)
        if (looks % kLooksBeforeYield == 0) sched_yield();
      board.turn.value.store(exchange + 1, std::memory_order_release);
    }
    best = std::min(best, (now() - begin) / (2 * kExchanges));
  }
  if (mine == 0) board.seconds = best;
}

// A barrier of all processes on one core: a process that finds others missing gives the core away.
void meet_by_yield(Board& board, int mine, std::uint32_t processes) {
  double best = std::numeric_limits<double>::max();
  std::uint32_t epoch = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    const double begin = now();
    for (int i = 0; i < kMeetings; ++i) {
      ++epoch;
      if (board.turn.value.fetch_add(1, std::memory_order_acq_rel) + 1 == epoch * processes)
        board.epoch.value.store(epoch, std::memory_order_release);
      while (board.epoch.value.load(std::memory_order_acquire) < epoch) sched_yield();
    }
    best = std::min(best, (now() - begin) / kMeetings);
  }
  if (mine == 0) board.seconds = best;
}

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, nullptr, nullptr, 0);
}

// The second process sleeps until the first wakes it.
void wake_sleeper(Board& board, int mine) {
  if (mine == 0) {
    std::this_thread::sleep_for(kSleep);
    board.came = now();
    board.turn.value.store(1, std::memory_order_release);
    futex(board.turn.value, FUTEX_WAKE, 1);
  } else {
    while (board.turn.value.load(std::memory_order_acquire) == 0) futex(board.turn.value, FUTEX_WAIT, 0);
    board.seconds = now() - board.came;
  }
}

}  // namespace

Meeting::Meeting() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores_.push_back(core);
}

double Meeting::line_seconds() {
  if (line_ == 0.0 && cores() > 1) line_ = best_of(kLooks, {cores_[0], cores_[1]}, exchange_line);
  return line_;
}

double Meeting::wake_seconds() {
  const int other = cores() > 1 ? cores_[1] : cores_[0];
  if (wake_ == 0.0) wake_ = best_of(kWakes, {cores_[0], other}, wake_sleeper);
  return wake_;
}

double Meeting::switch_seconds(int processes) {
  double& known = switches_[processes];
  if (known == 0.0)
    known = best_of(
        kLooks, std::vector<int>(static_cast<std::size_t>(processes), cores_.back()),
        [&](Board& board, int mine) { meet_by_yield(board, mine, static_cast<std::uint32_t>(processes)); });
  return known;
}

double Meeting::seconds(int ranks) {
  if (ranks <= cores()) return line_seconds();
  return switch_seconds((ranks + cores() - 1) / cores());
}

}  // namespace muster::bench
