// Several nodes in one process: a transport for each, on one pool of workers.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/collective/signature.hpp"
#include "kernels/device/registry.hpp"
#include "transport/endpoint/endpoint.hpp"
#include "transport/loopback/loopback.hpp"
#include "transport/span/spanning_transport.hpp"

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
// Makes the transport of node SpanningOptions::here.
using TransportOpener = std::function<JobTransport(const SpanningOptions&)>;
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
    options_.reproducible = reproducible;
    options_.direct_from_bytes = direct_from_bytes;
    auto opened = networks(nodes);
    start(nodes, [&](const SpanningOptions& options) {
      return spanning_transport(std::move(opened[options.here.value]), options, clock_);
    });
  }
  // Transports of another kind. `idle` is called when no node has made progress.
  SpanCluster(std::uint32_t nodes, const TransportOpener& open, std::function<void()> idle)
      : idle_(std::move(idle)) {
    start(nodes, open);
  }

 private:
  void start(std::uint32_t nodes, const TransportOpener& open) {
    pool_ = *device::Pool::start({.workers = 2});
    device_ = *device::open({}, *pool_);
    for (std::uint32_t i = 0; i < nodes; ++i) options_.nodes.push_back("n" + std::to_string(i));
    transports_.resize(nodes);
    for (std::uint32_t i = 0; i < nodes; ++i) restart(i, open);
    for (std::uint32_t one = 0; one < nodes; ++one)
      for (std::uint32_t other = 0; other < one; ++other) connect(one, other, 0);
    for (std::uint32_t one = 0; one < nodes; ++one)
      for (std::uint32_t other = 0; other < one; ++other)
        EXPECT_TRUE(until([&] { return are_connected(one, other); })) << "they do not find each other";
  }

 public:
  void connect(std::uint32_t one, std::uint32_t other, std::uint32_t generation) {
    const auto of_one = (*this)[one].address(), of_other = (*this)[other].address();
    EXPECT_TRUE((*this)[one].connect(NodeIndex(other), of_other, generation).ok());
    EXPECT_TRUE((*this)[other].connect(NodeIndex(one), of_one, generation).ok());
  }
  bool are_connected(std::uint32_t one, std::uint32_t other) {
    return (*this)[one].link(NodeIndex(other)).status.ok() && (*this)[other].link(NodeIndex(one)).status.ok();
  }
  // The node was started again: its transport is another, and nobody is connected with it.
  void restart(std::uint32_t node, std::unique_ptr<Network> network) {
    restart(node, [&](const SpanningOptions& options) {
      return spanning_transport(std::move(network), options, clock_);
    });
  }
  void restart(std::uint32_t node, const TransportOpener& open) {
    SpanningOptions options = options_;
    options.here = NodeIndex(node);
    transports_[node] = {};  // its former engine ends first
    transports_[node] = open(options);
    transports_[node].factories.front()->use([] {});
    transports_[node].factories.push_back(loopback_factory());
  }

  std::uint32_t nodes() const { return static_cast<std::uint32_t>(transports_.size()); }
  JobLinks& operator[](std::uint32_t node) { return *transports_[node].links; }
  std::size_t progress(std::uint32_t node) { return transports_[node].factories.front()->progress(); }
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
      communicators.push_back(span.here < span.nodes.size() ? open_on(node, span) : nullptr);
    }
    return communicators;
  }

  // The communicator of one node, whose place in the span is `here`.
  std::unique_ptr<Communicator> open_on(std::uint32_t node, const Span& span) {
    const auto members = std::count(span.node_of.begin(), span.node_of.end(), span.here);
    const std::vector<device::Device*> devices(static_cast<std::size_t>(members), device_.get());
    return *open_in(transports_[node].factories, span, devices);
  }

  // All nodes make progress in turn until `done`.
  bool until(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::size_t moved = 0;
      for (std::uint32_t node = 0; node < nodes(); ++node) moved += progress(node);
      if (moved == 0 && idle_) idle_();
    }
    return true;
  }

 private:
  SteadyClock clock_;
  std::function<void()> idle_;
  SpanningOptions options_;
  std::unique_ptr<device::Pool> pool_;
  std::unique_ptr<device::Device> device_;
  std::vector<JobTransport> transports_;
};

}  // namespace muster::transport::test
