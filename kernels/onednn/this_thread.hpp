// Keeps oneDNN on the thread that calls it.
#pragma once

namespace muster::kernels::onednn {

// The library uses OpenMP, and would start a team for each worker. Every entry of this folder calls this
// first. After the first call in a thread it costs a test.
void stay_on_this_thread();

}  // namespace muster::kernels::onednn
