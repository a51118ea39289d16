#include "scheduler/run/plan.hpp"

namespace muster::scheduler {

const char* Plan::label() const {
  if (const auto* k = kernel()) return k->kernel->name;
  return op_name(collective()->collective.op);
}

}  // namespace muster::scheduler
