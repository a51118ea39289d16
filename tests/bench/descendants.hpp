// The processes that a process has started, and those that they have started.
#pragma once

#include <vector>

namespace muster::bench {

// The descendants of `root`, without `root`, in no order. A process that starts or ends during the call may
// be missing or gone.
std::vector<int> descendants_of(int root);

}  // namespace muster::bench
