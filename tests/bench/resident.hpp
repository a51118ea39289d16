// Memory in use by a process and all that it has started.
#pragma once

namespace muster::bench {

// MiB that are resident of all processes that descend from `root`, itself not counted. A page that several of
// them share counts once (proportional set size of the kernel's smaps_rollup).
double resident_mib_below(int root);

}  // namespace muster::bench
