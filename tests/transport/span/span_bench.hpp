// A bench of the suite for communicators over several nodes in one process.
#pragma once

#include "tests/transport/communicator_conformance.hpp"
#include "tests/transport/span/span_cluster.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace muster::transport::test {

// Owns    the nodes. Thread  the test's. Bound  kInFlight launches at once. Fails  as the communicators do.
class SpanBench final : public Bench {
 public:
  SpanBench(std::uint32_t nodes, const NetworkOpener& networks, Spread spread, bool reproducible,
            std::uint64_t usual_cases, std::size_t direct_from_bytes)
      : cluster_(nodes, networks, reproducible, direct_from_bytes),
        spread_(std::move(spread)),
        usual_cases_(usual_cases) {}
  ~SpanBench() override { static_cast<void>(finish()); }

  Status launch(const Collective& collective, std::int32_t ranks,
                std::span<const Share* const> shares) override {
    Flight& flight = flights_.emplace_back();
    flight.outcomes.resize(cluster_.nodes());
    const auto count = static_cast<std::uint32_t>(ranks);
    const Group& group = group_of(count);
    MatchKey key{{count + std::uint64_t{1}, 0, -1, -1}, 1, ++number_};
    if (is_transfer(collective.op)) {
      key.place.sender = collective.root;
      key.place.receiver = collective.receiver;
    }
    if (group.is_local) flight.stream = *cluster_.device().open_stream(device::Priority::kNormal);
    for (const Share* share : shares) {
      flight.shares.push_back(*share);
      flight.signatures.push_back(signature_of(collective, *share, ranks));
    }
    for (std::uint32_t node = 0; node < cluster_.nodes(); ++node) {
      std::vector<LocalMember> members;
      for (std::size_t i = 0; i < shares.size(); ++i)
        if (spread_(static_cast<std::uint32_t>(shares[i]->index), count) == node)
          members.push_back(
              {&flight.shares[i], flight.stream.get(), bases_of(*shares[i]), &flight.signatures[i]});
      if (members.empty()) continue;
      flight.outcomes[node] = std::make_unique<StepOutcome>();
      MUSTER_RETURN_IF_ERROR(
          group.communicators[node]->launch(collective, members, key, *flight.outcomes[node]));
    }
    return {};
  }

  Status finish() override {
    const auto over = [](const Flight& flight) { return flight.over(); };
    if (!cluster_.until([&] { return std::all_of(flights_.begin(), flights_.end(), over); }))
      return failure(Code::kTimeout, "an operation has not ended");
    Status first;
    for (const Flight& flight : flights_) {
      if (flight.stream != nullptr) MUSTER_RETURN_IF_ERROR(flight.stream->synchronize());
      if (first.ok()) first = flight.first_failure();
    }
    flights_.clear();
    return first;
  }
  std::uint64_t usual_cases() const override { return usual_cases_; }

 private:
  struct Group {
    bool is_local = false;
    std::vector<std::unique_ptr<Communicator>> communicators;  // by node
  };
  struct Flight : SpanLaunch {
    std::unique_ptr<device::Stream> stream;  // of a group on one node
  };

  const Group& group_of(std::uint32_t ranks) {
    if (const auto known = groups_.find(ranks); known != groups_.end()) return known->second;
    const Span span = cluster_.span_of(ranks + std::uint64_t{1}, ranks, spread_);
    return groups_.emplace(ranks, Group{span.is_local(), cluster_.open(span)}).first->second;
  }

  SpanCluster cluster_;
  Spread spread_;
  std::uint64_t usual_cases_;
  std::map<std::uint32_t, Group> groups_;
  std::deque<Flight> flights_;
  std::uint64_t number_ = 0;
};

}  // namespace muster::transport::test
