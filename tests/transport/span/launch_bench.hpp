// One operation of several nodes in one process, launched over and over, so that a launch can be counted.
#pragma once

#include "tests/transport/case_shares.hpp"
#include "tests/transport/conformance_rows.hpp"
#include "tests/transport/memory_network.hpp"
#include "tests/transport/span/span_cluster.hpp"
#include "tests/transport/span/told_network.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::transport::test {

// Owns    the nodes, a group of members of all of them, and one operation of it.
// Thread  the test's.
// Bound   one launch at a time.
// Fails   the test.
class LaunchBench {
 public:
  LaunchBench(std::uint32_t nodes, std::uint32_t members, LibraryCalls calls)
      : members_(members), cluster_(nodes, told(std::move(calls)), false) {
    const auto in_turns = [nodes](std::uint32_t member, std::uint32_t) { return member % nodes; };
    communicators_ = cluster_.open(cluster_.span_of(kGroup, members, in_turns));
    outcomes_ = std::vector<StepOutcome>(nodes);
    of_node_.resize(nodes);
  }

  // 8 bytes of each member, block or face. An exchange is that of a grid whose rows are the members in turns:
  // member 0 and the ones beside it have four faces each.
  void make(muster_op op, std::uint64_t count = 2) {
    const auto ranks = static_cast<std::int32_t>(members_);
    shape_ = shape_of(op, MUSTER_F32, has_reduction(op) ? MUSTER_SUM : 0, ranks, count, Place::kApart);
    if (is_transfer(op)) shape_.collective.root = 0, shape_.collective.receiver = 1;
    if (has_faces(op)) {
      shape_.edges.clear();
      for (std::uint32_t tag = 0; tag < 4; ++tag)  // between member 1 and the two beside it
        for (const auto& [from, to] : {std::pair(tag / 2 * 2, 1u), std::pair(1u, tag / 2 * 2)})
          shape_.edges.push_back({static_cast<std::int32_t>(from % members_),
                                  static_cast<std::int32_t>(to % members_), tag, count});
    }
    std::size_t bytes = 0;
    const std::vector<Placement> placed = placements_of(shape_, &bytes);
    arena_.assign(bytes, std::byte(1));
    shares_ = *shares_of(shape_.collective, ranks, placed, arena_.data());
    signatures_.clear();
    for (auto& members : of_node_) members.clear();
    for (const Share& share : shares_) {
      signatures_.push_back(signature_of(shape_.collective, share, ranks));
      const std::uint32_t node = static_cast<std::uint32_t>(share.index) % cluster_.nodes();
      of_node_[node].push_back({&share, nullptr, bases_of(share), &signatures_.back()});
    }
    prepared_.resize(cluster_.nodes());
    for (std::uint32_t node = 0; node < cluster_.nodes(); ++node)
      if (!of_node_[node].empty())
        prepared_[node] = *communicators_[node]->prepare(shape_.collective, of_node_[node]);
  }

  // Launches it on all nodes, and makes progress until it is over.
  void launch() {
    MatchKey key{{kGroup, 3, -1, -1}, 1, ++number_};
    if (is_transfer(shape_.collective.op))
      key.place = {kGroup, 0, shape_.collective.root, shape_.collective.receiver};
    for (std::uint32_t node = 0; node < cluster_.nodes(); ++node) {
      if (of_node_[node].empty()) continue;
      outcomes_[node].renew();
      ASSERT_TRUE(
          communicators_[node]
              ->launch(prepared_[node], of_node_[node], key, device::Priority::kUrgent, outcomes_[node])
              .ok());
    }
    for (bool over = false; !over;) {
      over = true;
      for (std::uint32_t node = 0; node < cluster_.nodes(); ++node) {
        if (of_node_[node].empty()) continue;
        cluster_.progress(node);
        over = over && outcomes_[node].over();
      }
    }
    for (const StepOutcome& outcome : outcomes_) ASSERT_EQ(outcome.failure(), nullptr);
  }

 private:
  static constexpr std::uint64_t kGroup = 7;
  static NetworkOpener told(LibraryCalls calls) {
    return [calls = std::move(calls)](std::uint32_t count) {
      std::vector<std::unique_ptr<Network>> networks;
      for (auto& network : memory_networks(count))
        networks.push_back(std::make_unique<ToldNetwork>(std::move(network), calls));
      return networks;
    };
  }

  const std::uint32_t members_;
  SpanCluster cluster_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  Shape shape_;
  std::vector<std::byte> arena_;
  std::vector<Share> shares_;
  std::deque<Signature> signatures_;
  std::vector<std::vector<LocalMember>> of_node_;
  std::vector<std::shared_ptr<Communicator::Prepared>> prepared_;  // by node; null: it has no member of it
  std::vector<StepOutcome> outcomes_;
  std::uint64_t number_ = 0;
};

}  // namespace muster::transport::test
