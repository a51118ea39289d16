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
constexpr double kLookSeconds = 0.002;  // short enough for some of them to have the cores to themselves
constexpr int kTimesMax = 1 << 20;
constexpr int kFirstLooks = 3;
constexpr int kLastLooks = 15;

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
  const auto best_of = [&](int looks, int times) {
    double best = std::numeric_limits<double>::max();
    for (int look = 0; look < looks; ++look) best = std::min(best, run(times));
    return best;
  };
  run(1);
  int times = 1;
  while (times < kTimesMax && best_of(kFirstLooks, times) < kLookSeconds) times *= 4;
  return 2.0 * static_cast<double>(bytes) * times / best_of(kLastLooks, times);
}

}  // namespace

double MemoryFloor::bandwidth(std::size_t bytes) {
  double& known = bandwidth_[bytes];
  const int cores = meeting_.cores();
  if (known == 0.0)
    known = std::max(best_bandwidth(cores, bytes, copy_cached), best_bandwidth(cores, bytes, copy_streaming));
  return known;
}

double MemoryFloor::microseconds(Operation operation, std::size_t bytes, int ranks) {
  double seconds = all_wait_for_all(operation) ? meeting_.seconds(ranks) : meeting_.line_seconds();
  if (const std::size_t moved = bytes_moved(operation, bytes, ranks); moved > 0)
    seconds += static_cast<double>(moved) /
               bandwidth(std::max(bytes, kLine * static_cast<std::size_t>(meeting_.cores())));
  return seconds * 1e6;
}

}  // namespace muster::bench
