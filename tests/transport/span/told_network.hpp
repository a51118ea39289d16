// A network that says when its library runs, so that the code around it can be counted apart.
#pragma once

#include "transport/endpoint/endpoint.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace muster::transport::test {

// Called when the library begins to run, and when it calls back or ends.
struct LibraryCalls {
  std::function<void()> enter;
  std::function<void()> leave;
};

// Owns    the network behind it. Thread  as that one. Bound  as that one. Fails  as that one.
class ToldNetwork final : public Network {
 public:
  ToldNetwork(std::unique_ptr<Network> behind, LibraryCalls calls)
      : calls_(std::move(calls)), behind_(std::move(behind)) {}

  Bytes address() const noexcept override { return behind_->address(); }
  Result<std::unique_ptr<Endpoint>> connect(NodeIndex peer, Bytes address) override {
    MUSTER_ASSIGN_OR_RETURN(auto endpoint, behind_->connect(peer, address));
    return std::make_unique<Told>(std::move(endpoint), *this);
  }
  Result<std::unique_ptr<RegisteredMemory>> register_memory(WritableBytes memory) override {
    return behind_->register_memory(memory);
  }
  std::size_t progress() override {
    return inside([&] { return behind_->progress(); });
  }
  bool arm() override {
    return inside([&] { return behind_->arm(); });
  }
  int descriptor() const noexcept override { return behind_->descriptor(); }
  std::size_t freed_on_close_from() const noexcept override { return behind_->freed_on_close_from(); }
  std::string describe() const override { return behind_->describe(); }

 private:
  template<class Call>
  std::invoke_result_t<Call> inside(Call call) {
    calls_.enter();
    auto result = call();
    calls_.leave();
    return result;
  }

  // An operation, whose end the library reports.
  class Told;
  class Operation final : public Transfer {
   public:
    Operation(ToldNetwork& network, Transfer& owner) : network_(network), owner_(owner) {}
    void done(const Status& status, std::size_t bytes) override {
      network_.calls_.leave();
      owner_.done(status, bytes);
      network_.calls_.enter();
      network_.operations_.remove_if([this](const Operation& each) { return &each == this; });
    }

   private:
    ToldNetwork& network_;
    Transfer& owner_;
  };

  class Told final : public Endpoint {
   public:
    Told(std::unique_ptr<Endpoint> behind, ToldNetwork& network)
        : behind_(std::move(behind)), network_(network) {}
    NodeIndex peer() const noexcept override { return behind_->peer(); }
    Status status() const override { return behind_->status(); }
    Status send(MessageTag tag, Bytes from, Transfer& transfer) override {
      return begin(transfer, [&](Transfer& told) { return behind_->send(tag, from, told); });
    }
    Status receive(MessageTag tag, WritableBytes into, Transfer& transfer) override {
      return begin(transfer, [&](Transfer& told) { return behind_->receive(tag, into, told); });
    }
    Result<std::unique_ptr<RemoteMemory>> open_memory(Bytes key) override {
      return behind_->open_memory(key);
    }
    Status put(Bytes from, const RemoteMemory& memory, std::uint64_t offset, Transfer& transfer) override {
      return begin(transfer, [&](Transfer& told) { return behind_->put(from, memory, offset, told); });
    }
    Status get(WritableBytes into, const RemoteMemory& memory, std::uint64_t offset,
               Transfer& transfer) override {
      return begin(transfer, [&](Transfer& told) { return behind_->get(into, memory, offset, told); });
    }
    Status flush(Transfer& transfer) override {
      return begin(transfer, [&](Transfer& told) { return behind_->flush(told); });
    }

   private:
    template<class Call>
    Status begin(Transfer& owner, Call call) {
      return network_.inside([&] {
        Operation& operation = network_.operations_.emplace_back(network_, owner);
        const Status begun = call(operation);
        if (!begun.ok()) network_.operations_.pop_back();
        return begun;
      });
    }
    std::unique_ptr<Endpoint> behind_;
    ToldNetwork& network_;
  };

  const LibraryCalls calls_;
  std::list<Operation> operations_;
  std::unique_ptr<Network> behind_;  // ends first: it may end operations
};

}  // namespace muster::transport::test
