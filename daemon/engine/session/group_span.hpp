// The nodes of a group's members, and its communicator.
#pragma once

#include "api/base/nodes/span.hpp"
#include "api/base/world.hpp"
#include "scheduler/run/match_queue.hpp"
#include "transport/collective/communicator_factory.hpp"

#include <memory>

namespace muster::engine {

// The span of a group with members on this node.
transport::Span span_of(const scheduler::Group& group, const World& world);
// Its communicator, from the first factory that takes it. Fails as transport::open_in().
Result<std::unique_ptr<transport::Communicator>> open_communicator(const scheduler::Group& group,
                                                                   const RankTable<device::Device*>& devices,
                                                                   const transport::Factories& factories);

}  // namespace muster::engine
