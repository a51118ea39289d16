// Cores: the parts of one kernel at a time on the threads of this process.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace muster::bench::plain {

unsigned usable_cores();

// Owns    its threads; the caller is one of them.
// Thread  one caller.
// Bound   run() returns when all parts are done.
// Fails   never; std::system_error where no thread can be made.
class Cores {
 public:
  explicit Cores(unsigned threads);
  ~Cores();
  Cores(const Cores&) = delete;
  Cores& operator=(const Cores&) = delete;

  void run(std::uint32_t parts, const std::function<void(std::uint32_t part)>& part);

 private:
  void work(std::stop_token stop);
  void take_parts();

  const std::function<void(std::uint32_t)>* part_ = nullptr;
  std::uint32_t parts_ = 0;
  std::atomic<std::uint32_t> next_{0};
  std::atomic<std::uint32_t> busy_{0};
  std::atomic<std::uint64_t> round_{0};
  std::vector<std::jthread> threads_;
};

}  // namespace muster::bench::plain
