// A bench of the suite for communicators on a host device.
#pragma once

#include "kernels/device/registry.hpp"
#include "tests/transport/communicator_conformance.hpp"
#include "tests/transport/launch_once.hpp"
#include "transport/collective/communicator_factory.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace muster::transport::test {

// A start may begin vectors elsewhere than its plan: so the shares of a launch have no addresses here.
//
// Each member of a launch has a stream, on which nothing else lies until the step has ended. The bench waits
// for the first member's stream alone, then for what goes on outside, and then looks at the outcome.
//
// Owns    pool, streams and communicators.
// Thread  the test's.
// Bound   kInFlight launches at once.
// Fails   as the communicator does.
class HostBench final : public Bench {
 public:
  // `devices`: how many the members have, in turns.
  explicit HostBench(std::unique_ptr<CommunicatorFactory> factory, std::uint64_t usual_cases = 12'000,
                     std::uint32_t devices = 1)
      : factory_(std::move(factory)), usual_cases_(usual_cases) {
    // More threads than this suite's machines may have cores: any mix of them.
    pool_ = *device::Pool::start({.workers = 3});
    for (std::uint32_t i = 0; i < devices; ++i) devices_.push_back(*device::open({.ordinal = i}, *pool_));
  }
  ~HostBench() override {
    static_cast<void>(finish());  // what runs looks at the communicators
  }

  Status launch(const Collective& collective, std::int32_t ranks,
                std::span<const Share* const> shares) override {
    auto& communicator = communicators_[ranks];
    if (communicator == nullptr) communicator = open(ranks);
    Launch& launch = launches_[launched_];
    std::vector<LocalMember> members;
    launch.shares.clear();
    for (std::size_t i = 0; i < shares.size(); ++i) {
      if (i == launch.streams.size())
        launch.streams.push_back(*devices_[i % devices_.size()]->open_stream(device::Priority::kNormal));
      Share& bare = launch.shares.emplace_back(*shares[i]);
      bare.source = nullptr;
      bare.target = nullptr;
      members.push_back({&bare, launch.streams[i].get(), bases_of(*shares[i])});
    }
    launch.outcome.renew();
    Status status = launch_once(*communicator, collective, members, {}, launch.outcome);
    if (status.ok()) ++launched_;
    return status;
  }
  std::uint64_t usual_cases() const override { return usual_cases_; }
  Status finish() override {
    Status first;
    for (std::size_t i = 0; i < launched_; ++i) {
      Status ended = launches_[i].streams.front()->synchronize();
      while (!launches_[i].outcome.over())
        if (factory_->progress() == 0) std::this_thread::yield();
      if (ended.ok() && launches_[i].outcome.failure() != nullptr) ended = *launches_[i].outcome.failure();
      if (first.ok()) first = std::move(ended);
    }
    launched_ = 0;
    return first;
  }

 private:
  std::unique_ptr<Communicator> open(std::int32_t ranks) {
    std::vector<device::Device*> devices;
    for (std::size_t i = 0; i < static_cast<std::size_t>(ranks); ++i)
      devices.push_back(devices_[i % devices_.size()].get());
    return *factory_->open(span_of(ranks), devices);
  }
  // All members are on this node.
  static Span span_of(std::int32_t ranks) {
    Span span;
    span.node_of.resize(static_cast<std::size_t>(ranks));
    return span;
  }
  struct Launch {
    std::vector<std::unique_ptr<device::Stream>> streams;  // of the first member, of the second, …
    std::deque<Share> shares;
    StepOutcome outcome;
  };

  std::unique_ptr<CommunicatorFactory> factory_;
  std::uint64_t usual_cases_;
  std::unique_ptr<device::Pool> pool_;
  std::vector<std::unique_ptr<device::Device>> devices_;
  std::map<std::int32_t, std::unique_ptr<Communicator>> communicators_;
  std::array<Launch, kInFlight> launches_;
  std::size_t launched_ = 0;
};

}  // namespace muster::transport::test
