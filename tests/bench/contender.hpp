// Contender: what one rank of an implementation must be able to do so that sweep() can measure it. Muster and
// its peers stand behind the same interface, so that they are measured by the same loop, to the letter.
#pragma once

#include "tests/bench/operation.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muster::bench {

// An operation over its own memory, ready to run as often as wanted.
struct Prepared {
  std::span<float> source;
  std::span<float> target;
  // From start to result, on this rank. Empty where the implementation has no such operation.
  std::function<void()> run;
  // Brings a result that `run` leaves elsewhere to the target; only for the check, never timed. May be empty.
  std::function<void()> fetch = {};
  bool in_place = false;  // the source lies in the target, which is one for all ranks
};

// An all-reduce and work of this rank, to be seen one by one and at once. A unit of work is the same on all
// ranks and needs a fraction of a millisecond.
struct Overlap {
  std::function<void()> communicate;
  std::function<void(int units)> compute;
  std::function<void(int units)> both;  // the all-reduce is started first, and both are waited for
};

// Owns    the memory and the plan of the operation prepared last.
// Thread  one.
// Bound   one prepared operation.
// Fails   a call that the implementation refuses ends the rank with its reason on standard error.
class Contender {
 public:
  Contender() = default;
  virtual ~Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;

  virtual const char* name() const = 0;
  virtual std::string version() const = 0;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual void barrier() = 0;
  // The greatest of all ranks' values, the same on all of them.
  virtual double maximum(double mine) = 0;
  // Takes the place of what was prepared before. Not for kBarrier and kAllGatherShared.
  virtual Prepared prepare(const Shape& shape) = 0;

  // Instead for kAllGatherShared. None where ranks cannot have memory in common.
  virtual std::optional<Prepared> prepare_shared(const Shape& /*shape*/) { return std::nullopt; }

  // An all-reduce of `bytes` beside work. None where the implementation has no way to start and wait later.
  virtual std::optional<Overlap> prepare_overlap(std::size_t /*bytes*/) { return std::nullopt; }
  // One more group of all ranks, to be forgotten again. False: here a group is not made by a call.
  virtual bool make_group() { return false; }
  virtual void forget_group() {}
};

// Two vectors of a rank, as a program gets them from its allocator. They only grow: of all cells, the largest
// alone touches new memory.
class Vectors {
 public:
  Prepared of(const Shape& shape) {
    return {grown(source_, shape.source), grown(target_, shape.target), {}, {}, false};
  }

 private:
  static std::span<float> grown(std::vector<float>& vector, std::size_t elements) {
    if (vector.size() < elements) {
      vector.clear();  // nothing of it is to be copied
      vector.resize(elements);
    }
    return std::span<float>(vector).first(elements);
  }

  std::vector<float> source_;
  std::vector<float> target_;
};

}  // namespace muster::bench
