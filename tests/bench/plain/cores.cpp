#include "tests/bench/plain/cores.hpp"

#include <sched.h>

namespace muster::bench::plain {
namespace {

constexpr int kLooks = 4000;  // before a thread sleeps: kernels follow one another closely

}  // namespace

unsigned usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set)) : 1;
}

Cores::Cores(unsigned threads) {
  for (unsigned i = 1; i < threads; ++i) threads_.emplace_back([this](std::stop_token stop) { work(stop); });
}

Cores::~Cores() {
  for (std::jthread& thread : threads_) thread.request_stop();
  round_.fetch_add(1);
  round_.notify_all();
}

void Cores::run(std::uint32_t parts, const std::function<void(std::uint32_t)>& part) {
  if (parts == 1 || threads_.empty()) {
    for (std::uint32_t i = 0; i < parts; ++i) part(i);
    return;
  }
  part_ = &part;
  parts_ = parts;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
  round_.fetch_add(1);
  round_.notify_all();
  take_parts();
  while (busy_.load(std::memory_order_acquire) != 0) sched_yield();
}

void Cores::work(std::stop_token stop) {
  for (std::uint64_t seen = 0;; ++seen) {
    for (int look = 0; look < kLooks && round_.load() == seen; ++look) {
    }
    round_.wait(seen);
    if (stop.stop_requested()) return;
    take_parts();
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

void Cores::take_parts() {
  for (std::uint32_t i = next_.fetch_add(1); i < parts_; i = next_.fetch_add(1)) (*part_)(i);
}

}  // namespace muster::bench::plain
