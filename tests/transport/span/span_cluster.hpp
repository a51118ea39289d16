// Several nodes in one process: a spanning backend and a network for each, on one pool of workers.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/collective/signature.hpp"
#include "kernels/device/host/pool.hpp"
#include "transport/endpoint/endpoint.hpp"
#include "transport/span/spanning_backend.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::transport::test {

using NetworkOpener = std::function<std::vector<std::unique_ptr<Network>>(std::uint32_t count)>;
// On which node each member of a group of so many ranks is.
using Spread = std::function<std::uint32_t(std::uint32_t member, std::uint32_t ranks)>;

// A collective that all nodes of a group were asked for: each may have been told another.
struct SpanLaunch {
  std::deque<Collective> collectives;
  std::deque<Share> shares;
  std::deque<Signature> signatures;
  std::vector<std::unique_ptr<StepOutcome>> outcomes;  // by node; null: it has no member of it

  bool over() const {
    return std::all_of(outcomes.begin(), outcomes.end(),
                       [](const auto& outcome) { return outcome == nullptr || outcome->over(); });
  }
  Status first_failure() const {
    for (const auto& outcome : outcomes)
      if (outcome != nullptr && outcome->failure() != nullptr) return *outcome->failure();
    return {};
  }
};

// Owns    the nodes. Thread  the test's. Bound  60 s for what is waited for. Fails  the test, if they do not
//         find each other.
class SpanCluster {
 public:
  SpanCluster(std::uint32_t nodes, const NetworkOpener& networks, bool reproducible,
              std::size_t direct_from_bytes = SpanningOptions().direct_from_bytes) {
    pool_ = *device::host::Pool::start({.workers = 2});
    device_ = *device::host::open_device(*pool_);
    options_.reproducible = reproducible;
    options_.direct_from_bytes = direct_from_bytes;
    for (std::uint32_t i = 0; i < nodes; ++i) options_.nodes.push_back("n" + std::to_string(i));
    for (auto& network : networks(nodes)) {
      backends_.emplace_back();
      restart(static_cast<std::uint32_t>(backends_.size()) - 1, std::move(network));
    }
    for (std::uint32_t one = 0; one < nodes; ++one)
      for (std::uint32_t other = 0; other < one; ++other) connect(one, other, 0);
    for (std::uint32_t one = 0; one < nodes; ++one)
      for (std::uint32_t other = 0; other < one; ++other)
        EXPECT_TRUE(until([&] { return are_connected(one, other); })) << "they do not find each other";
  }

  void connect(std::uint32_t one, std::uint32_t other, std::uint32_t generation) {
    for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)})
      EXPECT_TRUE(backends_[from]->connect(NodeIndex(to), backends_[to]->address(), generation).ok());
  }
  bool are_connected(std::uint32_t one, std::uint32_t other) {
    return backends_[one]->link(NodeIndex(other)).status.ok() &&
           backends_[other]->link(NodeIndex(one)).status.ok();
  }
  // The node was started again: its backend is another, and nobody is connected with it.
  void restart(std::uint32_t node, std::unique_ptr<Network> network) {
    SpanningOptions options = options_;
    options.here = NodeIndex(node);
    backends_[node] = spanning_backend(std::move(network), options, clock_);
    EXPECT_TRUE(backends_[node]->use(*device_, [] {}).ok());
  }

  std::uint32_t nodes() const { return static_cast<std::uint32_t>(backends_.size()); }
  Backend& operator[](std::uint32_t node) { return *backends_[node]; }
  device::Device& device() { return *device_; }

  // The span as each node sees it, in which `here` is not set; and a node's place in it.
  Span span_of(std::uint64_t group, std::uint32_t ranks, const Spread& spread) const {
    Span span;
    span.group = group;
    span.nodes.clear();
    for (std::uint32_t member = 0; member < ranks; ++member) span.nodes.emplace_back(spread(member, ranks));
    std::sort(span.nodes.begin(), span.nodes.end());
    span.nodes.erase(std::unique(span.nodes.begin(), span.nodes.end()), span.nodes.end());
    for (std::uint32_t member = 0; member < ranks; ++member)
      span.node_of.push_back(index_in(span, spread(member, ranks)));
    return span;
  }
  static std::uint32_t index_in(const Span& span, std::uint32_t node) {
    return static_cast<std::uint32_t>(std::find(span.nodes.begin(), span.nodes.end(), NodeIndex(node)) -
                                      span.nodes.begin());
  }
  // The group's communicators, by node; null where it has no member.
  std::vector<std::unique_ptr<Communicator>> open(Span span) {
    std::vector<std::unique_ptr<Communicator>> communicators;
    for (std::uint32_t node = 0; node < nodes(); ++node) {
      span.here = index_in(span, node);
      communicators.push_back(span.here < span.nodes.size() ? *backends_[node]->open(span) : nullptr);
    }
    return communicators;
  }

  // All nodes make progress in turn until `done`.
  bool until(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      for (auto& backend : backends_) backend->progress();
    }
    return true;
  }

 private:
  SteadyClock clock_;
  SpanningOptions options_;
  std::unique_ptr<device::host::Pool> pool_;
  std::unique_ptr<device::Device> device_;
  std::vector<std::unique_ptr<Backend>> backends_;
};

}  // namespace muster::transport::test
