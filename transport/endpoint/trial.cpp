#include "transport/endpoint/trial.hpp"

#include "transport/endpoint/library.hpp"

#include <algorithm>
#include <vector>

namespace muster::transport {
namespace {

constexpr std::size_t kBytes = 64 << 10;

// An operation whose end is waited for.
//
// Owns    nothing. Thread  the caller's. Bound  -. Fails  by `status`.
struct Awaited final : Transfer {
  void done(const Status& said, std::size_t length) override {
    status = said;
    bytes = length;
    over = true;
  }
  Status status;
  std::size_t bytes = 0;
  bool over = false;
};

// Progress of both networks until all are over.
Status await(std::span<Network* const> networks, std::span<Awaited* const> all, const Clock& clock,
             Instant end) {
  const auto over = [](const Awaited* each) { return each->over; };
  while (!std::all_of(all.begin(), all.end(), over)) {
    if (clock.now() >= end) return failure(Code::kTimeout, "a transfer within this process has not ended");
    for (Network* network : networks) network->progress();
  }
  for (const Awaited* each : all) MUSTER_RETURN_IF_ERROR(each->status);
  return {};
}

}  // namespace

Result<std::string> try_network(const std::string& folder, const std::string& name, const Clock& clock,
                                Nanos limit) {
  const Instant end = clock.now() + limit;
  std::vector<std::byte> sent(kBytes, std::byte{0x5a});
  std::vector<std::byte> came(kBytes);
  std::vector<std::byte> memory(kBytes);
  // Before the networks: operations that have not ended when this gives up still refer to these.
  Awaited send, receive, put, flush, get;
  MUSTER_ASSIGN_OR_RETURN(const auto one, open_network(folder, name, NodeIndex(0)));
  MUSTER_ASSIGN_OR_RETURN(const auto two, open_network(folder, name, NodeIndex(1)));
  MUSTER_ASSIGN_OR_RETURN(const auto registered, two->register_memory(memory));
  const std::vector<std::byte> address(one->address().begin(), one->address().end());
  MUSTER_ASSIGN_OR_RETURN(const auto to_two, one->connect(NodeIndex(1), two->address()));
  MUSTER_ASSIGN_OR_RETURN(const auto to_one, two->connect(NodeIndex(0), address));
  Network* const both[] = {one.get(), two.get()};
  MUSTER_RETURN_IF_ERROR(to_one->receive(0, came, receive));
  MUSTER_RETURN_IF_ERROR(to_two->send(0, sent, send));
  Awaited* const message[] = {&send, &receive};
  MUSTER_RETURN_IF_ERROR(await(both, message, clock, end));
  if (receive.bytes != sent.size())
    return fail(Code::kCorrupt, "a message of {} bytes came with {}", sent.size(), receive.bytes);
  if (came != sent) return fail(Code::kCorrupt, "a message came with other bytes than it was sent with");

  MUSTER_ASSIGN_OR_RETURN(const auto remote, to_two->open_memory(registered->key()));
  MUSTER_RETURN_IF_ERROR(to_two->put(sent, *remote, 0, put));
  MUSTER_RETURN_IF_ERROR(to_two->flush(flush));
  Awaited* const written[] = {&put, &flush};
  MUSTER_RETURN_IF_ERROR(await(both, written, clock, end));
  if (memory != sent) return fail(Code::kCorrupt, "a write has left other bytes than it had");
  std::ranges::fill(came, std::byte{0});
  MUSTER_RETURN_IF_ERROR(to_two->get(came, *remote, 0, get));
  Awaited* const read[] = {&get};
  MUSTER_RETURN_IF_ERROR(await(both, read, clock, end));
  if (came != sent) return fail(Code::kCorrupt, "a read has brought other bytes than there were");
  return one->describe();
}

}  // namespace muster::transport
