#include "daemon/engine/memory/core_set.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <sched.h>

namespace muster::engine {
namespace {

constexpr std::size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;
constexpr std::size_t kCoresAtFirst = 1024;
constexpr std::size_t kCoresMax = std::size_t{1} << 20;
constexpr const char* kThreads = "/proc/self/task";

void trim(CoreSet& cores) {
  while (!cores.words.empty() && cores.words.back() == 0) cores.words.pop_back();
}

bool has(const CoreSet& cores, std::size_t core) {
  return core / kWordBits < cores.words.size() &&
         (cores.words[core / kWordBits] >> core % kWordBits & 1) != 0;
}

}  // namespace

std::uint32_t CoreSet::count() const {
  int sum = 0;
  for (const unsigned long word : words) sum += std::popcount(word);
  return static_cast<std::uint32_t>(sum);
}

CoreSet& CoreSet::operator|=(const CoreSet& other) {
  words.resize(std::max(words.size(), other.words.size()));
  for (std::size_t i = 0; i < other.words.size(); ++i) words[i] |= other.words[i];
  return *this;
}

CoreSet& CoreSet::operator&=(const CoreSet& other) {
  words.resize(std::min(words.size(), other.words.size()));
  for (std::size_t i = 0; i < words.size(); ++i) words[i] &= other.words[i];
  trim(*this);
  return *this;
}

std::string text_of(const CoreSet& cores) {
  std::string text;
  const std::size_t end = cores.words.size() * kWordBits;
  for (std::size_t core = 0; core < end; ++core) {
    if (!has(cores, core)) continue;
    const std::size_t first = core;
    while (has(cores, core + 1)) ++core;
    text += fmt::format("{}{}", text.empty() ? "" : ",", first);
    if (core > first) text += fmt::format("-{}", core);
  }
  return text;
}

// The room grows until the kernel's mask fits.
std::optional<CoreSet> cores_of_thread(std::int32_t thread) {
  CoreSet cores;
  for (std::size_t room = kCoresAtFirst; room <= kCoresMax; room *= 2) {
    cores.words.assign(room / kWordBits, 0);
    auto* const mask = reinterpret_cast<cpu_set_t*>(cores.words.data());
    if (::sched_getaffinity(thread, room / CHAR_BIT, mask) == 0) {
      trim(cores);
      return cores;
    }
    if (errno != EINVAL) return std::nullopt;
  }
  return std::nullopt;
}

Status keep_threads_to(const CoreSet& cores) {
  const auto* const mask = reinterpret_cast<const cpu_set_t*>(cores.words.data());
  Status status;
  std::error_code error;
  for (std::filesystem::directory_iterator task(kThreads, error), end; !error && task != end;
       task.increment(error)) {
    const int thread = std::atoi(task->path().filename().c_str());
    if (::sched_setaffinity(thread, cores.words.size() * sizeof cores.words[0], mask) == 0) continue;
    if (errno == ESRCH) continue;  // it has ended
    status = failure(Code::kNoResource, "thread {} cannot be kept to cores {}: {}", thread, text_of(cores),
                     std::strerror(errno));
  }
  if (error) return failure(Code::kNoResource, "{}: {}; mount /proc", kThreads, error.message());
  return status;
}

}  // namespace muster::engine
