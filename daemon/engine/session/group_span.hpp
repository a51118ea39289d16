// The nodes of a group's members.
#pragma once

#include "api/base/nodes/span.hpp"
#include "api/base/world.hpp"
#include "scheduler/run/match_queue.hpp"

namespace muster::engine {

// The span of a group with members on this node.
transport::Span span_of(const scheduler::Group& group, const World& world);

}  // namespace muster::engine
