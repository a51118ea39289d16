// The processes that a process has started, and those that they have started.
#pragma once

#include <vector>

namespace muster::bench {

// Of `root`, itself not counted; in no order. What starts or ends meanwhile may be missing or gone.
std::vector<int> descendants_of(int root);

}  // namespace muster::bench
