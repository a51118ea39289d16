// A bench of the suite for communicators over several nodes in one process.
#pragma once

#include "tests/transport/communicator_conformance.hpp"
#include "tests/transport/launch_once.hpp"
#include "tests/transport/span/span_cluster.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace muster::transport::test {

using NodesOf = std::vector<std::uint32_t>;  // the members of a group: the node of each
// The nodes of the members of an operation among so many ranks. It may draw others each time.
using Placing = std::function<NodesOf(std::uint32_t ranks)>;

inline Placing spread_by(Spread spread) {
  return [spread = std::move(spread)](std::uint32_t ranks) {
    NodesOf layout;
    for (std::uint32_t member = 0; member < ranks; ++member) layout.push_back(spread(member, ranks));
    return layout;
  };
}

// Owns    the nodes, and a group for each layout that there was.
// Thread  the test's.
// Bound   kInFlight launches at once.
// Fails   as the communicators do.
class SpanBench final : public Bench {
 public:
  struct Options {
    std::uint32_t nodes = 1;
    Placing placing;
    bool reproducible = true;
    std::uint64_t usual_cases = 0;
    std::size_t direct_from_bytes = SpanningOptions().direct_from_bytes;
    std::int32_t ranks_max = kRanksDrawnMax;  // of a random case
  };
  SpanBench(const NetworkOpener& networks, Options options)
      : SpanBench(std::make_unique<SpanCluster>(options.nodes, networks, options.reproducible,
                                                options.direct_from_bytes),
                  options) {}
  SpanBench(std::unique_ptr<SpanCluster> cluster, Options options)
      : options_(std::move(options)), cluster_(std::move(cluster)) {}
  ~SpanBench() override { static_cast<void>(finish()); }

  void place(Placing placing) { options_.placing = std::move(placing); }

  Status launch(const Collective& collective, std::int32_t ranks,
                std::span<const Share* const> shares) override {
    Flight& flight = flights_.emplace_back();
    flight.outcomes.resize(cluster_->nodes());
    const auto count = static_cast<std::uint32_t>(ranks);
    const Group& group = group_of(options_.placing(count));
    MatchKey key{{group.key, 0, -1, -1}, 1, ++number_};
    if (is_transfer(collective.op)) {
      key.place.sender = collective.root;
      key.place.receiver = collective.receiver;
    }
    if (group.is_local) flight.stream = *cluster_->device().open_stream(device::Priority::kNormal);
    for (const Share* share : shares) {
      flight.shares.push_back(*share);
      flight.signatures.push_back(signature_of(collective, *share, ranks));
    }
    for (std::uint32_t node = 0; node < cluster_->nodes(); ++node) {
      std::vector<LocalMember> members;
      for (std::size_t i = 0; i < shares.size(); ++i)
        if (group.layout[static_cast<std::size_t>(shares[i]->index)] == node)
          members.push_back(
              {&flight.shares[i], flight.stream.get(), bases_of(*shares[i]), &flight.signatures[i]});
      if (members.empty()) continue;
      flight.outcomes[node] = std::make_unique<StepOutcome>();
      MUSTER_RETURN_IF_ERROR(
          launch_once(*group.communicators[node], collective, members, key, *flight.outcomes[node]));
    }
    return {};
  }

  Status finish() override {
    const auto over = [](const Flight& flight) { return flight.over(); };
    if (!cluster_->until([&] { return std::all_of(flights_.begin(), flights_.end(), over); }))
      return failure(Code::kTimeout, "an operation has not ended");
    Status first;
    for (const Flight& flight : flights_) {
      if (flight.stream != nullptr) MUSTER_RETURN_IF_ERROR(flight.stream->synchronize());
      if (first.ok()) first = flight.first_failure();
    }
    flights_.clear();
    return first;
  }
  std::uint64_t usual_cases() const override { return options_.usual_cases; }
  // Nodes whose job is not reproducible add in another order, which numbers that are added exactly do not
  // show.
  Shape random_case(std::uint64_t seed) const override {
    Shape shape = random_shape(seed, options_.ranks_max);
    return options_.reproducible ? shape : added_exactly(std::move(shape));
  }

 private:
  struct Group {
    NodesOf layout;
    std::uint64_t key = 0;
    bool is_local = false;
    std::vector<std::unique_ptr<Communicator>> communicators;  // by node
  };
  struct Flight : SpanLaunch {
    std::unique_ptr<device::Stream> stream;  // of a group on one node
  };

  const Group& group_of(const NodesOf& layout) {
    if (const auto known = groups_.find(layout); known != groups_.end()) return known->second;
    const std::uint64_t key = groups_.size() + 1;
    const Span span = cluster_->span_of(key, static_cast<std::uint32_t>(layout.size()),
                                        [&](std::uint32_t member, std::uint32_t) { return layout[member]; });
    return groups_.emplace(layout, Group{layout, key, span.is_local(), cluster_->open(span)}).first->second;
  }

  Options options_;
  const std::unique_ptr<SpanCluster> cluster_;
  std::map<NodesOf, Group> groups_;
  std::deque<Flight> flights_;
  std::uint64_t number_ = 0;
};

}  // namespace muster::transport::test
