// Words: the shared memory of a model on Relacy's simulated memory, and the product's calls that touch it:
// atomics, copies, futexes, yields, and the arithmetic of kernels/math.
//
// Every shared word that matters is registered once, by its address. An access to shared memory that is not
// registered ends the program, so nothing escapes the checker unnoticed.
//
// Included by one source only, after the headers of the product: Relacy replaces words such as `new`.
#pragma once

#include "api/base/clock.hpp"
#include "api/shm/futex.hpp"
#include "kernels/math/copy.hpp"
#include "kernels/math/deliver.hpp"
#include "kernels/math/reduce.hpp"
#include "kernels/math/strided.hpp"
#include "tests/models/seam.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#undef memcpy
#include <relacy/base.hpp>
#include <relacy/thread_local_ctx.hpp>

#include <relacy/context_base.hpp>  // wants the one before it
// Relacy would count each allocation of a schedule; the product's containers live longer than that.
#define is_ctx() counts_allocations()
namespace rl {
inline bool counts_allocations() {
  return false;
}
}  // namespace rl
#include <relacy/relacy.hpp>
#undef is_ctx
#undef sched_yield
#undef new
#undef delete
#undef malloc
#undef free
#undef assert

namespace muster::model {

// How plain bytes are treated. kRaceless: two accesses without an order between them, one of them a write,
// are an error. kTorn: such accesses are what the protocol expects and discards, so a byte is read as x86
// reads it, old or new, each load ordered after the loads before it and each store after the stores.
enum class Bytes { kRaceless, kTorn };

enum class Sleep { kUntimed, kTimed };

// How strong each access is made: to tell what needs a weak machine from what every machine can do.
enum class Strength {
  kAsWritten,   // the orders that the source names
  kX86,         // no load passes a load, no store a store
  kSequential,  // one access after the other: what is found is a matter of interleaving alone
};

// Owns    the addresses, names and simulated contents of all shared words.
// Thread  one; Relacy's threads are its fibers.
// Bound   the memory registered before the search begins.
// Fails   ends the program at an unregistered access.
class Words {
 public:
  enum class Kind { kAtomic, kBytes };
  struct Cell {
    Kind kind;
    std::size_t index;  // among those of its kind
    std::string name;
  };

  // ---- before the search -----------------------------------------------------------------------
  // Memory that ranks share: what lies in it has to be registered.
  void share(const void* memory, std::size_t bytes) { shared_.push_back({address_of(memory), bytes}); }
  // Words in it that no property depends on: left to the machine.
  void leave_out(const void* memory, std::size_t bytes) { quiet_.push_back({address_of(memory), bytes}); }
  void atomic(const void* word, std::string name) { put(word, Kind::kAtomic, std::move(name), &atomics_); }
  void bytes(const void* word, std::string name) { put(word, Kind::kBytes, std::move(name), &plains_); }

  // ---- one schedule ----------------------------------------------------------------------------
  // The simulated words of one schedule, each with what the machine's memory has.
  class Contents {
   public:
    explicit Contents(Words& words, Bytes treatment)
        : words_(words), atomics_(words.atomics_ + words.plains_), plains_(words.plains_) {
      for (const auto& [address, cell] : words.cells_) {
        const auto value = *reinterpret_cast<const std::uint64_t*>(address);
        const rl::debug_info info = words.about(cell);
        if (cell.kind == Kind::kAtomic)
          atomics_[cell.index].store(value, rl::mo_relaxed, info);
        else if (treatment == Bytes::kTorn)
          atomics_[words.atomics_ + cell.index].store(value, rl::mo_relaxed, info);
        else
          plains_[cell.index](info).store(value);
      }
      words.contents_ = this;
      words.treatment_ = treatment;
    }
    ~Contents() { words_.contents_ = nullptr; }
    Contents(const Contents&) = delete;

   private:
    friend class Words;
    Words& words_;
    std::vector<rl::atomic<std::uint64_t>> atomics_;
    std::vector<rl::var<std::uint64_t>> plains_;
  };

  const Cell* find(const void* word) const {
    const auto known = cells_.find(address_of(word));
    return known != cells_.end() && contents_ != nullptr ? &known->second : nullptr;
  }
  bool is_quiet(const void* word) const {
    return contents_ == nullptr || !within(shared_, word) || within(quiet_, word);
  }
  std::uint64_t load(const Cell& cell, rl::memory_order order) {
    if (cell.kind == Kind::kAtomic)
      return contents_->atomics_[cell.index].load(strengthened(order, rl::mo_acquire), about(cell));
    if (treatment_ == Bytes::kRaceless) return contents_->plains_[cell.index](about(cell)).load();
    return contents_->atomics_[atomics_ + cell.index].load(strengthened(rl::mo_acquire, rl::mo_acquire),
                                                           about(cell));
  }
  void store(const Cell& cell, std::uint64_t value, rl::memory_order order) {
    if (cell.kind == Kind::kAtomic)
      return contents_->atomics_[cell.index].store(value, strengthened(order, rl::mo_release), about(cell));
    if (treatment_ == Bytes::kRaceless) return contents_->plains_[cell.index](about(cell)).store(value);
    contents_->atomics_[atomics_ + cell.index].store(value, strengthened(rl::mo_release, rl::mo_release),
                                                     about(cell));
  }
  rl::atomic<std::uint64_t>& simulated(const Cell& cell) { return contents_->atomics_[cell.index]; }
  static rl::debug_info about(const Cell& cell) { return {cell.name.c_str(), "", 0}; }
  Strength strength = Strength::kAsWritten;

  [[noreturn]] static void escaped(const char* what, const void* word) {
    std::fprintf(stderr, "model: %s of shared memory at %p, which is not registered\n", what, word);
    std::abort();
  }

 private:
  struct Range {
    std::uintptr_t first;
    std::size_t bytes;
  };
  rl::memory_order strengthened(rl::memory_order order, rl::memory_order on_x86) const {
    if (strength == Strength::kSequential) return rl::mo_seq_cst;
    return strength == Strength::kX86 && order == rl::mo_relaxed ? on_x86 : order;
  }
  static std::uintptr_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }
  static bool within(const std::vector<Range>& ranges, const void* word) {
    return std::any_of(ranges.begin(), ranges.end(), [address = address_of(word)](const Range& range) {
      return address - range.first < range.bytes;
    });
  }
  void put(const void* word, Kind kind, std::string name, std::size_t* count) {
    cells_.insert_or_assign(address_of(word), Cell{kind, (*count)++, std::move(name)});
  }

  std::unordered_map<std::uintptr_t, Cell> cells_;
  std::vector<Range> shared_;
  std::vector<Range> quiet_;
  std::size_t atomics_ = 0;
  std::size_t plains_ = 0;
  Contents* contents_ = nullptr;
  Bytes treatment_ = Bytes::kRaceless;
};

inline Words& words() {
  static Words all;
  return all;
}

// The time of a model's threads: it passes while they sleep. One tick is the end of a nap.
struct Naps {
  Sleep sleep = Sleep::kUntimed;
  std::array<int, 8> ticks{};
};
inline Naps& naps() {
  static Naps all;
  return all;
}
inline std::size_t this_thread() {
  return static_cast<std::size_t>(rl::ctx().threadx_->index_);
}

inline rl::memory_order simulated_order(std::memory_order order) {
  switch (order) {
    case std::memory_order::relaxed:
      return rl::mo_relaxed;
    case std::memory_order::acquire:
      return rl::mo_acquire;
    case std::memory_order::release:
      return rl::mo_release;
    case std::memory_order::acq_rel:
      return rl::mo_acq_rel;
    default:
      return rl::mo_seq_cst;
  }
}

// ---- the seam --------------------------------------------------------------------------------------

namespace machine {  // memory that the checker does not see
template<class T>
T& as(const void* word) {
  return *static_cast<T*>(const_cast<void*>(word));
}
inline std::uint64_t load(const void* word, std::size_t bytes) {
  return bytes == 8 ? as<std::uint64_t>(word) : as<std::uint32_t>(word);
}
inline void store(void* word, std::size_t bytes, std::uint64_t value) {
  if (bytes == 8)
    as<std::uint64_t>(word) = value;
  else
    as<std::uint32_t>(word) = static_cast<std::uint32_t>(value);
}
}  // namespace machine

std::uint64_t load(const void* word, std::size_t bytes, std::memory_order order) noexcept {
  if (const Words::Cell* cell = words().find(word)) return words().load(*cell, simulated_order(order));
  if (!words().is_quiet(word)) Words::escaped("a load", word);
  return machine::load(word, bytes);
}

void store(void* word, std::size_t bytes, std::uint64_t value, std::memory_order order) noexcept {
  if (const Words::Cell* cell = words().find(word))
    return words().store(*cell, value, simulated_order(order));
  if (!words().is_quiet(word)) Words::escaped("a store", word);
  machine::store(word, bytes, value);
}

void add(void* word, std::size_t bytes, std::uint64_t value, std::memory_order order) noexcept {
  if (const Words::Cell* cell = words().find(word)) {
    words().simulated(*cell).fetch_add(value, simulated_order(order), Words::about(*cell));
    return;
  }
  if (!words().is_quiet(word)) Words::escaped("an addition", word);
  machine::store(word, bytes, machine::load(word, bytes) + value);
}

void fence(std::memory_order order) noexcept {
  rl::context& c = rl::ctx();
  if (words().strength != Strength::kAsWritten) order = std::memory_order::seq_cst;
  switch (order) {
    case std::memory_order::acquire:
      return c.atomic_thread_fence_acquire();
    case std::memory_order::release:
      return c.atomic_thread_fence_release();
    case std::memory_order::acq_rel:
      return c.atomic_thread_fence_acq_rel();
    default:
      return c.atomic_thread_fence_seq_cst();
  }
}

// Word by word where either side is shared.
void* copy(void* target, const void* source, std::size_t bytes) noexcept {
  auto* to = static_cast<std::byte*>(target);
  const auto* from = static_cast<const std::byte*>(source);
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    const Words::Cell* given = words().find(from + at);
    const Words::Cell* taken = words().find(to + at);
    const std::size_t part = std::min(sizeof(std::uint64_t), bytes - at);
    std::uint64_t value = 0;
    if (given != nullptr)
      value = words().load(*given, rl::mo_relaxed);
    else
      __builtin_memcpy(&value, from + at, part);
    if (taken != nullptr)
      words().store(*taken, value, rl::mo_relaxed);
    else
      __builtin_memcpy(to + at, &value, part);
  }
  return target;
}

}  // namespace muster::model

// ---- functions that the product calls ----------------------------------------------------------------

namespace muster::shm {

// The kernel's pair of a light and a heavy fence is not simulated. Both sides are full fences here, as on a
// machine whose kernel refuses the pair.
bool enrol_for_fences() noexcept {
  return false;
}
void heavy_fence() noexcept {
  model::fence(std::memory_order::seq_cst);
}

// As the kernel does it: the comparison and the queueing are one step, behind a full barrier.
void futex_wait(const std::uint32_t* word, std::uint32_t seen, Nanos) noexcept {
  const model::Words::Cell* cell = model::words().find(word);
  if (cell == nullptr) model::Words::escaped("a futex", word);
  auto& simulated = model::words().simulated(*cell);
  const rl::debug_info info = model::Words::about(*cell);
  rl::context& c = rl::ctx();
  c.sched();
  c.atomic_thread_fence_seq_cst();
  std::uint64_t now = 0;
  {
    rl::preemption_disabler atomically(c);
    now = simulated.load(rl::mo_seq_cst, info);
  }
  if (static_cast<std::uint32_t>(now) != seen) return;
  const bool timed = model::naps().sleep == model::Sleep::kTimed;
  if (simulated.wait(c, timed, false, info) == rl::unpark_reason_timeout)
    ++model::naps().ticks[model::this_thread()];
}

void futex_wake(const std::uint32_t* word) noexcept {
  const model::Words::Cell* cell = model::words().find(word);
  if (cell == nullptr) model::Words::escaped("a futex", word);
  rl::context& c = rl::ctx();
  c.sched();
  c.atomic_thread_fence_seq_cst();
  model::words().simulated(*cell).wake(c, INT_MAX, model::Words::about(*cell));
}

}  // namespace muster::shm

extern "C" int sched_yield() noexcept {
  rl::yield(1, rl::debug_info("sched_yield"));
  return 0;
}

// Any range of bytes stands for its first word: whoever reads it early, late or while it changes finds that
// out from one word as well as from all.
namespace muster::math {

void copy(std::byte* target, const std::byte* source, std::size_t, std::size_t) {
  if (target != source) model::copy(target, source, sizeof(std::uint64_t));
}

Reducer reducer_of(muster_dtype dtype, muster_redop redop) {
  static_cast<void>(dtype), static_cast<void>(redop);
  return [](const Reduction& r) { reduce(0, 0, std::span(r.sources, r.source_count), r.target, r.count, 0); };
}

// Always a sum of 64-bit integers, each member's in bits of its own.
void reduce(muster_dtype, muster_redop, std::span<const std::byte* const> sources, std::byte* target,
            std::size_t, double) {
  std::uint64_t sum = 0;
  for (const std::byte* source : sources) {
    std::uint64_t value = 0;
    model::copy(&value, source, sizeof value);
    sum += value;
  }
  model::copy(target, &sum, sizeof sum);
}

void reduce_to_all(muster_dtype dtype, muster_redop redop, std::span<const std::byte* const> sources,
                   std::span<std::byte* const> targets, std::size_t count, double scale, std::size_t) {
  for (std::byte* target : targets) reduce(dtype, redop, sources, target, count, scale);
}

void copy_to_all(std::span<std::byte* const> targets, const std::byte* source, std::size_t, std::size_t) {
  for (std::byte* target : targets) copy(target, source, 0, 0);
}

void copy_faces(const Face& target, const Face& source, std::uint64_t, std::uint64_t, std::size_t,
                std::size_t) {
  copy(target.data, source.data, 0, 0);
}

}  // namespace muster::math
