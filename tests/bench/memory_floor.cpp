#include "tests/bench/memory_floor.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include <sys/mman.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace muster::bench {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr double kLookSeconds = 0.01;
constexpr int kLooks = 9;
constexpr int kExchanges = 2000;
constexpr int kLooksBeforeYield = 4096;

using Seconds = std::chrono::duration<double>;
using Copy = void (*)(char* target, const char* source, std::size_t bytes);

void copy_cached(char* target, const char* source, std::size_t bytes) {
  std::memcpy(target, source, bytes);
}

// Past the caches: a line that is written whole need not be read first.
void copy_streaming(char* target, const char* source, std::size_t bytes) {
#ifdef __SSE2__
  std::size_t i = 0;
  for (; i + kLine <= bytes; i += kLine)
    for (std::size_t j = 0; j < kLine; j += sizeof(__m128i))
      _mm_stream_si128(reinterpret_cast<__m128i*>(target + i + j),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(source + i + j)));
  std::memcpy(target + i, source + i, bytes - i);
  _mm_sfence();
#else
  std::memcpy(target, source, bytes);
#endif
}

struct Release {
  void operator()(char* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<char, Release>;

Buffer touched(std::size_t bytes) {
  const std::size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  Buffer buffer(static_cast<char*>(std::aligned_alloc(kHugePage, rounded)));
  if (!buffer) std::abort();
  madvise(buffer.get(), rounded, MADV_HUGEPAGE);  // where the kernel has them
  std::memset(buffer.get(), 1, rounded);
  return buffer;
}

// From the first start to the last end of `cores` threads that begin together.
double together(int cores, const std::function<void(int)>& work) {
  std::atomic<int> ready{0};
  std::vector<std::chrono::steady_clock::time_point> starts(static_cast<std::size_t>(cores));
  std::vector<std::chrono::steady_clock::time_point> ends(starts.size());
  std::vector<std::thread> threads;
  for (int core = 0; core < cores; ++core)
    threads.emplace_back([&, core] {
      ready.fetch_add(1);
      while (ready.load() < cores) std::this_thread::yield();
      starts[static_cast<std::size_t>(core)] = std::chrono::steady_clock::now();
      work(core);
      ends[static_cast<std::size_t>(core)] = std::chrono::steady_clock::now();
    });
  for (std::thread& thread : threads) thread.join();
  return Seconds(*std::max_element(ends.begin(), ends.end()) -
                 *std::min_element(starts.begin(), starts.end()))
      .count();
}

double best_bandwidth(int cores, std::size_t bytes, Copy copy) {
  const Buffer source = touched(bytes);
  const Buffer target = touched(bytes);
  const std::size_t lines = (bytes + kLine - 1) / kLine;
  const auto part = [&](int core) {
    return std::min(bytes, lines * static_cast<std::size_t>(core) / static_cast<std::size_t>(cores) * kLine);
  };
  const auto run = [&](int times) {
    return together(cores, [&](int core) {
      for (int i = 0; i < times; ++i)
        copy(target.get() + part(core), source.get() + part(core), part(core + 1) - part(core));
    });
  };
  run(1);
  const int times = static_cast<int>(std::clamp(kLookSeconds / (run(4) / 4), 1.0, 1e6));
  double best = std::numeric_limits<double>::max();
  for (int look = 0; look < kLooks; ++look) best = std::min(best, run(times) / times);
  return 2.0 * static_cast<double>(bytes) / best;
}

}  // namespace

std::size_t bytes_moved(const std::string& operation, std::size_t bytes, int ranks) {
  const auto all = static_cast<std::size_t>(ranks) * bytes;
  if (operation == "all_reduce") return all + all;
  if (operation == "all_gather" || operation == "reduce_scatter") return all + bytes;
  return 0;
}

double MemoryFloor::bandwidth(std::size_t bytes) {
  double& known = bandwidth_[bytes];
  if (known == 0.0)
    known =
        std::max(best_bandwidth(cores_, bytes, copy_cached), best_bandwidth(cores_, bytes, copy_streaming));
  return known;
}

double MemoryFloor::meeting_seconds() {
  if (meeting_ != 0.0 || cores_ < 2) return meeting_;
  alignas(kLine) std::atomic<int> turn{0};
  meeting_ = std::numeric_limits<double>::max();
  for (int look = 0; look < kLooks; ++look) {
    turn = 0;
    const double seconds = together(2, [&](int mine) {
      for (int exchange = mine; exchange < 2 * kExchanges; exchange += 2) {
        // Should both sit on one core, the other must get it.
        for (int looks = 1; turn.load(std::memory_order_acquire) != exchange; ++looks)
          if (looks % kLooksBeforeYield == 0) std::this_thread::yield();
        turn.store(exchange + 1, std::memory_order_release);
      }
    });
    meeting_ = std::min(meeting_, seconds / (2 * kExchanges));
  }
  return meeting_;
}

Row MemoryFloor::of(const std::string& operation, std::size_t bytes, int ranks) {
  double seconds = meeting_seconds();
  if (const std::size_t moved = bytes_moved(operation, bytes, ranks); moved > 0)
    seconds +=
        static_cast<double>(moved) / bandwidth(std::max(bytes, kLine * static_cast<std::size_t>(cores_)));
  return {operation, bytes, ranks, "memory", "floor", seconds * 1e6, seconds * 1e6};
}

}  // namespace muster::bench
