// CoreSet: cores of this machine, as an affinity mask of the kernel has them.
#pragma once

#include "api/base/status.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::engine {

struct CoreSet {
  std::vector<unsigned long> words;  // core 0 is the lowest bit of the first; the last word is not 0

  bool empty() const { return words.empty(); }
  std::uint32_t count() const;
  CoreSet& operator|=(const CoreSet& other);
  CoreSet& operator&=(const CoreSet& other);
  friend bool operator==(const CoreSet&, const CoreSet&) = default;
};

// "0-3,8", as taskset and the kernel write it.
std::string text_of(const CoreSet& cores);

// Those on which the thread may run; 0: the calling one. None: there is no such thread.
std::optional<CoreSet> cores_of_thread(std::int32_t thread);

// Keeps all threads that this process has to these cores, those of libraries too. Threads to come inherit
// that. Goes on at a thread that cannot be kept there, and returns the last failure.
Status keep_threads_to(const CoreSet& cores);

}  // namespace muster::engine
