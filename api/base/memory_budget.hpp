// MemoryBudget: the seam to whoever counts the memory of a job.
#pragma once

#include "api/base/status.hpp"

#include <cstdint>

namespace muster {

// Owns    the count. Thread  any. Bound  its own. Fails  take: kNoResource.
class MemoryBudget {
 public:
  // Owns    bytes of a budget, in steps, for many small pieces that come and go.
  // Thread  one.
  // Bound   the pieces, rounded up to a step, and a step more.
  // Fails   take: as the budget. Without one it counts nothing.
  class Pieces {
   public:
    static constexpr std::uint64_t kStep = 64 << 10;

    explicit Pieces(MemoryBudget* budget) : budget_(budget) {}
    ~Pieces() {
      if (budget_ != nullptr && taken_ > 0) budget_->give_back(taken_);
    }
    Pieces(const Pieces&) = delete;
    Pieces& operator=(const Pieces&) = delete;

    Status take(std::uint64_t bytes) {
      if (budget_ != nullptr && used_ + bytes > taken_) {
        const std::uint64_t more = (used_ + bytes - taken_ + kStep - 1) / kStep * kStep;
        if (Status taken = budget_->take(more); !taken.ok()) return taken;
        taken_ += more;
      }
      used_ += bytes;
      return {};
    }
    void give_back(std::uint64_t bytes) {
      used_ -= bytes;
      if (budget_ == nullptr || taken_ < used_ + 2 * kStep) return;
      const std::uint64_t less = (taken_ - used_) / kStep * kStep - kStep;
      budget_->give_back(less);
      taken_ -= less;
    }

   private:
    MemoryBudget* const budget_;
    std::uint64_t used_ = 0;
    std::uint64_t taken_ = 0;
  };

  virtual ~MemoryBudget() = default;
  virtual Status take(std::uint64_t bytes) = 0;
  virtual void give_back(std::uint64_t bytes) = 0;
};

}  // namespace muster
