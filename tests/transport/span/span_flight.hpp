// A collective in flight on several nodes, and the memory of its members.
#pragma once

#include "tests/transport/case_shares.hpp"
#include "tests/transport/collective_case.hpp"
#include "tests/transport/launch_once.hpp"
#include "tests/transport/span/span_cluster.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::transport::test {

struct SpanFlight {
  Shape shape;
  Case made;
  std::vector<std::byte> arena;
  std::vector<Share> shares;
  SpanLaunch launched;

  bool over() const { return launched.over(); }
  // Whether the members whose node says that all is well have what the oracle says.
  bool is_right_where_ok(const Spread& spread) const {
    return are_right(made.members, shares, arena, made.after, [&](std::uint32_t member) {
      return launched.outcomes[spread(member, static_cast<std::uint32_t>(shape.ranks))]->failure() == nullptr;
    });
  }
};

// Launches the shape on all nodes, which each have a communicator of the group; a member's is that of
// `spread`. `meant_on(node)`: the collective that its members mean. The flight stays where it is until it is
// over.
template<class MeantOn>
void launch_on_all(SpanFlight& flight, const Shape& shape, Case made, const Spread& spread,
                   const std::vector<std::unique_ptr<Communicator>>& communicators, const MatchKey& key,
                   MeantOn meant_on, std::uint32_t absent = UINT32_MAX) {
  const auto ranks = static_cast<std::uint32_t>(shape.ranks);
  flight.shape = shape;
  flight.made = std::move(made);
  flight.arena = flight.made.before;
  flight.shares = *shares_of(flight.shape.collective, shape.ranks, flight.made.members, flight.arena.data());
  SpanLaunch& launched = flight.launched;
  launched.outcomes.resize(communicators.size());
  for (std::uint32_t node = 0; node < communicators.size(); ++node) {
    const Collective& meant = launched.collectives.emplace_back(meant_on(node));
    std::vector<LocalMember> members;
    for (const Share& share : flight.shares) {
      if (spread(static_cast<std::uint32_t>(share.index), ranks) != node) continue;
      launched.signatures.push_back(signature_of(meant, share, shape.ranks));
      members.push_back({&share, nullptr, bases_of(share), &launched.signatures.back()});
    }
    if (members.empty() || node == absent) continue;  // of a SEND
    launched.outcomes[node] = std::make_unique<StepOutcome>();
    EXPECT_TRUE(launch_once(*communicators[node], meant, members, key, *launched.outcomes[node]).ok());
  }
}
inline void launch_on_all(SpanFlight& flight, const Shape& shape, const Spread& spread,
                          const std::vector<std::unique_ptr<Communicator>>& communicators,
                          const MatchKey& key) {
  launch_on_all(flight, shape, make_case(shape), spread, communicators, key,
                [&](std::uint32_t) { return shape.collective; });
}

}  // namespace muster::transport::test
