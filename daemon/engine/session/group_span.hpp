// On which nodes the members of a group are.
#pragma once

#include "api/base/nodes/span.hpp"
#include "api/base/world.hpp"
#include "scheduler/run/match_queue.hpp"

namespace muster::engine {

// Of a group with members on this node.
transport::Span span_of(const scheduler::Group& group, const World& world);

}  // namespace muster::engine
