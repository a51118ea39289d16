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
  // Number of the fault at the root: a loss, an abort, a deadline, an interrupt, a disagreement or a failed
  // step. The job counts its faults from 1. All failures that follow from one fault carry its number.
  std::uint64_t fault = 0;
  // kDependency: the code at the root. Peers of this rank fail with that code.
  Code root = Code::kOk;
};

using CausePtr = std::shared_ptr<const Cause>;

}  // namespace muster::scheduler
