#include "kernels/onednn/this_thread.hpp"

#include <omp.h>

namespace muster::kernels::onednn {

void stay_on_this_thread() {
  thread_local const bool done = [] {
    omp_set_num_threads(1);  // of the calling thread
    return true;
  }();
  (void)done;
}

}  // namespace muster::kernels::onednn
