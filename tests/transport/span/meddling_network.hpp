// A network on whose way messages are changed, or come again. Everything else is as the network behind does
// it.
#pragma once

#include "transport/endpoint/endpoint.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace muster::transport::test {

// A message between engines, on its way.
struct MessageOnItsWay {
  NodeIndex from;
  NodeIndex to;
  MessageTag tag = 0;
  bool is_head = true;  // else bytes of members
  std::vector<std::byte> bytes;
};

// Called for each message that a node sends; it may change the bytes.
using Meddler = std::function<void(MessageOnItsWay& message)>;

// Owns    the network behind it, and copies of messages until it ends.
// Thread  as Network. Bound  none: a test ends soon. Fails  as the network behind.
class MeddlingNetwork final : public Network {
 public:
  MeddlingNetwork(std::unique_ptr<Network> behind, NodeIndex here, Meddler meddler)
      : behind_(std::move(behind)), here_(here), meddler_(std::move(meddler)) {}

  Bytes address() const noexcept override { return behind_->address(); }
  Result<std::unique_ptr<Endpoint>> connect(NodeIndex peer, Bytes address) override {
    MUSTER_ASSIGN_OR_RETURN(auto endpoint, behind_->connect(peer, address));
    auto meddling = std::make_unique<MeddlingEndpoint>(*this, std::move(endpoint));
    latest_[peer.value] = meddling.get();
    return meddling;
  }
  Result<std::unique_ptr<RegisteredMemory>> register_memory(WritableBytes memory) override {
    return behind_->register_memory(memory);
  }
  std::size_t progress() override { return behind_->progress(); }
  bool arm() override { return behind_->arm(); }
  int descriptor() const noexcept override { return behind_->descriptor(); }
  std::size_t freed_on_close_from() const noexcept override { return behind_->freed_on_close_from(); }
  std::string describe() const override { return behind_->describe(); }

  // Sends a message once more, by the latest endpoint to its receiver. False: there is no room, or no
  // endpoint.
  bool again(const MessageOnItsWay& message) {
    const auto found = latest_.find(message.to.value);
    return found != latest_.end() && found->second->again(message);
  }

 private:
  // A copy that is sent in the place of a message, and tells that one's transfer.
  struct Copy final : Transfer {
    void done(const Status& status, std::size_t bytes) override {
      const auto told = std::exchange(original, nullptr);
      is_over = true;
      if (told != nullptr) told->done(status, bytes);
    }
    std::vector<std::byte> message;
    Transfer* original = nullptr;
    bool is_over = false;
  };
  class MeddlingEndpoint final : public Endpoint {
   public:
    MeddlingEndpoint(MeddlingNetwork& network, std::unique_ptr<Endpoint> behind)
        : network_(network), behind_(std::move(behind)) {}
    ~MeddlingEndpoint() override {
      auto& latest = network_.latest_;
      if (const auto found = latest.find(peer().value); found != latest.end() && found->second == this)
        latest.erase(found);
    }
    NodeIndex peer() const noexcept override { return behind_->peer(); }
    Status status() const override { return behind_->status(); }
    Status send(MessageTag tag, Bytes from, Transfer& transfer) override {
      constexpr MessageTag kNumbers = (MessageTag{1} << 36) - 1;  // below them: the generation
      MessageOnItsWay message{network_.here_, peer(), tag, (tag & kNumbers) == 0, {from.begin(), from.end()}};
      if (network_.meddler_) network_.meddler_(message);
      return sent(message, &transfer);
    }
    bool again(const MessageOnItsWay& message) { return sent(message, nullptr).ok(); }
    Status receive(MessageTag tag, WritableBytes into, Transfer& transfer) override {
      return behind_->receive(tag, into, transfer);
    }
    Result<std::unique_ptr<RemoteMemory>> open_memory(Bytes key) override {
      return behind_->open_memory(key);
    }
    Status put(Bytes from, const RemoteMemory& memory, std::uint64_t offset, Transfer& transfer) override {
      return behind_->put(from, memory, offset, transfer);
    }
    Status get(WritableBytes into, const RemoteMemory& memory, std::uint64_t offset,
               Transfer& transfer) override {
      return behind_->get(into, memory, offset, transfer);
    }
    Status flush(Transfer& transfer) override { return behind_->flush(transfer); }

   private:
    Status sent(const MessageOnItsWay& message, Transfer* original) {
      auto& copies = network_.copies_;
      while (!copies.empty() && copies.front().is_over) copies.pop_front();
      Copy& copy = copies.emplace_back();
      copy.message = message.bytes;
      copy.original = original;
      const Status begun = behind_->send(message.tag, copy.message, copy);
      copy.is_over = copy.is_over || !begun.ok();
      return begun;
    }
    MeddlingNetwork& network_;
    std::unique_ptr<Endpoint> behind_;
  };

  std::deque<Copy> copies_;  // outlive the network behind
  std::unique_ptr<Network> behind_;
  const NodeIndex here_;
  const Meddler meddler_;
  std::map<std::uint32_t, MeddlingEndpoint*> latest_;  // by NodeIndex
};

}  // namespace muster::transport::test
