// Cause: why operations failed, in the words that the client reads.
#pragma once

#include "api/base/status.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace muster::scheduler {

struct Cause {
  Code code = Code::kInternal;
  std::int32_t culprit = -1;  // world rank; -1: none
  std::string text;
  // The fault at the root: a loss, an abort, a deadline, an interrupt, a disagreement or a failed step. The
  // job counts its faults from 1. Whatever else fails because of this one carries the same number.
  std::uint64_t fault = 0;
  // kDependency: the code at the root. Those who would have met this rank hear that code.
  Code root = Code::kOk;
};

using CausePtr = std::shared_ptr<const Cause>;

}  // namespace muster::scheduler
