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

// A head of a message between engines, on its way.
struct HeadOnItsWay {
  NodeIndex from;
  NodeIndex to;
  MessageTag tag = 0;
  std::vector<std::byte> bytes;
};

// Called for each head that a node sends; it may change the bytes.
using Meddler = std::function<void(HeadOnItsWay& head)>;

// Owns    the network behind it, and copies of heads until it ends.
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

  // Sends a head once more, by the latest endpoint to its receiver. False: there is no room, or no endpoint.
  bool again(const HeadOnItsWay& head) {
    const auto found = latest_.find(head.to.value);
    return found != latest_.end() && found->second->again(head);
  }

 private:
  // A copy that is sent in the place of a head, and tells the head's transfer.
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
      if ((tag & kNumbers) != 0) return behind_->send(tag, from, transfer);
      HeadOnItsWay head{network_.here_, peer(), tag, {from.begin(), from.end()}};
      if (network_.meddler_) network_.meddler_(head);
      return sent(head, &transfer);
    }
    bool again(const HeadOnItsWay& head) { return sent(head, nullptr).ok(); }
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
    Status sent(const HeadOnItsWay& head, Transfer* original) {
      auto& copies = network_.copies_;
      while (!copies.empty() && copies.front().is_over) copies.pop_front();
      Copy& copy = copies.emplace_back();
      copy.message = head.bytes;
      copy.original = original;
      const Status begun = behind_->send(head.tag, copy.message, copy);
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
