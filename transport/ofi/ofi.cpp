// A Network over libfabric: tagged messages, writes and reads of one reliable-datagram endpoint.
// Source: the manual pages of libfabric 1.17, https://ofiwg.github.io/libfabric/v1.17.1/man/.
#include "api/base/message_head.hpp"
#include "transport/endpoint/envelope.hpp"
#include "transport/endpoint/library.hpp"
#include "transport/ofi/provider.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <list>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

namespace muster::transport {
namespace {

constexpr std::uint64_t kAddressKind = 0x31524444414f4649ULL;
constexpr std::uint64_t kKeyKind = 0x3159454b5f4f4649ULL;
constexpr std::size_t kCompletions = 64;  // taken at once

template<class Object>
struct Closed {
  void operator()(Object* object) const { fi_close(&object->fid); }
};
template<class Object>
using Owned = std::unique_ptr<Object, Closed<Object>>;

// `error`: negative, as libfabric returns it.
Status status_of(long error, const char* what) {
  if (error >= 0) return {};
  const Code code = error == -FI_ENOMEM || error == -FI_ENOSPC ? Code::kNoResource : Code::kInternal;
  return failure(code, "libfabric: {}: {}", what, fi_strerror(static_cast<int>(-error)));
}

class OfiEndpoint;

class OfiMemory final : public RegisteredMemory {
 public:
  OfiMemory(Owned<fid_mr> memory, std::vector<std::byte> key)
      : memory_(std::move(memory)), key_(std::move(key)) {}
  Bytes key() const noexcept override { return key_; }

 private:
  const Owned<fid_mr> memory_;
  const std::vector<std::byte> key_;
};

class OfiRemoteMemory final : public RemoteMemory {
 public:
  OfiRemoteMemory(const Envelope& head, std::uint64_t key) : head_(head), key_(key) {}
  std::uint64_t bytes() const noexcept override { return head_.bytes; }
  const Envelope& head() const { return head_; }
  std::uint64_t key() const { return key_; }

 private:
  const Envelope head_;
  const std::uint64_t key_;
};

class OfiNetwork;

class OfiEndpoint final : public Endpoint {
 public:
  OfiEndpoint(OfiNetwork& network, NodeIndex peer, fi_addr_t address)
      : network_(network), peer_(peer), address_(address) {}
  ~OfiEndpoint() override;
  OfiEndpoint(const OfiEndpoint&) = delete;
  OfiEndpoint& operator=(const OfiEndpoint&) = delete;

  NodeIndex peer() const noexcept override { return peer_; }
  Status status() const override { return failed_; }
  Status send(MessageTag tag, Bytes from, Transfer& transfer) override;
  Status receive(MessageTag tag, WritableBytes into, Transfer& transfer) override;
  Result<std::unique_ptr<RemoteMemory>> open_memory(Bytes key) override;
  Status put(Bytes from, const RemoteMemory& memory, std::uint64_t offset, Transfer& transfer) override;
  Status get(WritableBytes into, const RemoteMemory& memory, std::uint64_t offset,
             Transfer& transfer) override;
  Status flush(Transfer& transfer) override;

  fi_addr_t address() const { return address_; }
  void fail_with(Status why) { failed_ = std::move(why); }
  // The number of puts that have begun, and of puts that have ended. Puts may end out of order, so a flush
  // waits until all puts begun before it have ended.
  std::uint64_t puts_begun = 0;
  std::uint64_t puts_ended = 0;
  std::size_t kept = 0;  // operations for which libfabric has no room yet

 private:
  Status ready(MessageTag tag = 0) const;

  OfiNetwork& network_;
  const NodeIndex peer_;
  const fi_addr_t address_;
  Status failed_;
};

class OfiNetwork final : public Network {
 public:
  // One operation that has not ended yet, or whose end is not reported yet.
  struct Operation {
    enum class Kind : std::uint8_t { kSend, kReceive, kPut, kGet, kFlush };
    fi_context2 context{};            // the first member: libfabric returns its address
    OfiEndpoint* endpoint = nullptr;  // null: it was closed
    Transfer* transfer = nullptr;
    Kind kind = Kind::kSend;
    std::byte* data = nullptr;
    std::size_t bytes = 0;     // what was asked; of a receive that has ended: the length of its message
    std::uint64_t tag = 0;     // whole
    std::uint64_t remote = 0;  // address and key of a peer's memory
    std::uint64_t key = 0;
    std::uint64_t puts = 0;  // of a flush: how many puts must have ended
    Status status{};
    std::list<Operation>::iterator self{};
  };
  using Operations = std::list<Operation>;

  explicit OfiNetwork(NodeIndex here) : here_(here) {}
  ~OfiNetwork() override = default;
  OfiNetwork(const OfiNetwork&) = delete;
  OfiNetwork& operator=(const OfiNetwork&) = delete;

  Status open(const InterfaceChoice& choice);

  Bytes address() const noexcept override { return address_; }
  Result<std::unique_ptr<Endpoint>> connect(NodeIndex peer, Bytes address) override;
  Result<std::unique_ptr<RegisteredMemory>> register_memory(WritableBytes memory) override;
  std::size_t progress() override;
  bool arm() override;
  int descriptor() const noexcept override { return descriptor_; }
  std::size_t freed_on_close_from() const noexcept override { return SIZE_MAX; }
  std::string describe() const override;

  NodeIndex here() const { return here_; }
  // Begins the operation, or keeps it until there is room.
  Status begin(OfiEndpoint& endpoint, Operation operation);
  // A receive waits for a tag, not for an endpoint: nothing ends it when its peer is gone.
  void end_receives(const OfiEndpoint& endpoint);
  // From here on all operations of the endpoint end as aborted.
  void disown(OfiEndpoint& endpoint);

 private:
  long start(Operation& operation);
  void begin_kept();
  void take_completions();
  void take_error();
  void end(Operation& operation, Status status);
  void end_flushes(const OfiEndpoint& endpoint);
  void lose(OfiEndpoint& endpoint, Status why);

  const NodeIndex here_;
  Operations in_flight_;
  Operations kept_;  // until libfabric has room
  Operations flushes_;
  Operations ended_;
  OwnedInfo info_{nullptr, fi_freeinfo};
  Owned<fid_fabric> fabric_;
  Owned<fid_domain> domain_;
  Owned<fid_av> peers_;
  Owned<fid_cq> completions_;
  Owned<fid_ep> endpoint_;
  int descriptor_ = -1;
  std::vector<std::byte> address_;
  std::uint64_t generation_ = 0;  // of the last key
};

// ---- endpoint ----------------------------------------------------------------------------------

OfiEndpoint::~OfiEndpoint() {
  network_.end_receives(*this);
  network_.disown(*this);
}

Status OfiEndpoint::ready(MessageTag tag) const {
  MUSTER_RETURN_IF_ERROR(check_tag(tag));
  return failed_;
}

Status OfiEndpoint::send(MessageTag tag, Bytes from, Transfer& transfer) {
  MUSTER_RETURN_IF_ERROR(ready(tag));
  return network_.begin(*this, {.transfer = &transfer,
                                .kind = OfiNetwork::Operation::Kind::kSend,
                                .data = const_cast<std::byte*>(from.data()),
                                .bytes = from.size(),
                                .tag = whole_tag(network_.here(), tag)});
}

Status OfiEndpoint::receive(MessageTag tag, WritableBytes into, Transfer& transfer) {
  MUSTER_RETURN_IF_ERROR(ready(tag));
  return network_.begin(*this, {.transfer = &transfer,
                                .kind = OfiNetwork::Operation::Kind::kReceive,
                                .data = into.data(),
                                .bytes = into.size(),
                                .tag = whole_tag(peer_, tag)});
}

Result<std::unique_ptr<RemoteMemory>> OfiEndpoint::open_memory(Bytes key) {
  MUSTER_RETURN_IF_ERROR(ready());
  MUSTER_ASSIGN_OR_RETURN(const Envelope head, open_envelope(key, kKeyKind, "key of libfabric"));
  const Bytes body = body_of_envelope(key);
  const auto number = read_head<std::uint64_t>(body);
  if (body.size() != sizeof *number) return fail(Code::kBadArgument, "a key of {} bytes", body.size());
  return std::make_unique<OfiRemoteMemory>(head, *number);
}

Status OfiEndpoint::put(Bytes from, const RemoteMemory& memory, std::uint64_t offset, Transfer& transfer) {
  MUSTER_RETURN_IF_ERROR(ready());
  const auto& remote = static_cast<const OfiRemoteMemory&>(memory);
  MUSTER_RETURN_IF_ERROR(check_within(remote.head(), offset, from.size()));
  MUSTER_RETURN_IF_ERROR(network_.begin(*this, {.transfer = &transfer,
                                                .kind = OfiNetwork::Operation::Kind::kPut,
                                                .data = const_cast<std::byte*>(from.data()),
                                                .bytes = from.size(),
                                                .remote = remote.head().address + offset,
                                                .key = remote.key()}));
  ++puts_begun;
  return {};
}

Status OfiEndpoint::get(WritableBytes into, const RemoteMemory& memory, std::uint64_t offset,
                        Transfer& transfer) {
  MUSTER_RETURN_IF_ERROR(ready());
  const auto& remote = static_cast<const OfiRemoteMemory&>(memory);
  MUSTER_RETURN_IF_ERROR(check_within(remote.head(), offset, into.size()));
  return network_.begin(*this, {.transfer = &transfer,
                                .kind = OfiNetwork::Operation::Kind::kGet,
                                .data = into.data(),
                                .bytes = into.size(),
                                .remote = remote.head().address + offset,
                                .key = remote.key()});
}

Status OfiEndpoint::flush(Transfer& transfer) {
  MUSTER_RETURN_IF_ERROR(ready());
  return network_.begin(
      *this, {.transfer = &transfer, .kind = OfiNetwork::Operation::Kind::kFlush, .puts = puts_begun});
}

// ---- network -----------------------------------------------------------------------------------

Status OfiNetwork::open(const InterfaceChoice& choice) {
  MUSTER_ASSIGN_OR_RETURN(info_, find_provider(choice));
  fid_fabric* fabric = nullptr;
  MUSTER_RETURN_IF_ERROR(status_of(fi_fabric(info_->fabric_attr, &fabric, nullptr), "opening its fabric"));
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  MUSTER_RETURN_IF_ERROR(status_of(fi_domain(fabric, info_.get(), &domain, nullptr), "opening its domain"));
  domain_.reset(domain);
  fi_av_attr table{};
  table.type = FI_AV_TABLE;
  fid_av* peers = nullptr;
  MUSTER_RETURN_IF_ERROR(status_of(fi_av_open(domain, &table, &peers, nullptr), "opening its addresses"));
  peers_.reset(peers);
  fi_cq_attr queue{};
  queue.format = FI_CQ_FORMAT_TAGGED;
  queue.wait_obj = FI_WAIT_FD;
  fid_cq* completions = nullptr;
  MUSTER_RETURN_IF_ERROR(status_of(fi_cq_open(domain, &queue, &completions, nullptr), "opening its queue"));
  completions_.reset(completions);
  fid_ep* endpoint = nullptr;
  MUSTER_RETURN_IF_ERROR(status_of(fi_endpoint(domain, info_.get(), &endpoint, nullptr), "opening its end"));
  endpoint_.reset(endpoint);
  MUSTER_RETURN_IF_ERROR(status_of(fi_ep_bind(endpoint, &peers->fid, 0), "binding its addresses"));
  MUSTER_RETURN_IF_ERROR(
      status_of(fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV), "binding its queue"));
  MUSTER_RETURN_IF_ERROR(status_of(fi_enable(endpoint), "enabling its end"));
  MUSTER_RETURN_IF_ERROR(
      status_of(fi_control(&completions->fid, FI_GETWAIT, &descriptor_), "its descriptor"));
  std::array<std::byte, 512> name{};
  std::size_t bytes = name.size();
  MUSTER_RETURN_IF_ERROR(status_of(fi_getname(&endpoint->fid, name.data(), &bytes), "its address"));
  address_ = seal_envelope({.kind = kAddressKind}, Bytes(name).first(bytes));
  return {};
}

Result<std::unique_ptr<Endpoint>> OfiNetwork::connect(NodeIndex peer, Bytes address) {
  MUSTER_RETURN_IF_ERROR(check_index(peer));
  if (const auto head = open_envelope(address, kAddressKind, "address of libfabric"); !head)
    return fail(head.error());
  // All addresses of a provider have one length; its own is an example.
  if (address.size() != address_.size())
    return fail(Code::kBadArgument, "an address of {} bytes, and {} are right here", address.size(),
                address_.size());
  fi_addr_t entry = FI_ADDR_UNSPEC;
  const int inserted = fi_av_insert(peers_.get(), body_of_envelope(address).data(), 1, &entry, 0, nullptr);
  if (inserted != 1)
    return fail(Code::kBadArgument, "libfabric does not take the address of node {}", peer.value);
  return std::make_unique<OfiEndpoint>(*this, peer, entry);
}

Result<std::unique_ptr<RegisteredMemory>> OfiNetwork::register_memory(WritableBytes memory) {
  const std::uint64_t generation = ++generation_;
  const bool own_key = (info_->domain_attr->mr_mode & FI_MR_PROV_KEY) == 0;
  fid_mr* registered = nullptr;
  MUSTER_RETURN_IF_ERROR(
      status_of(fi_mr_reg(domain_.get(), memory.data(), memory.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
                          own_key ? generation : 0, 0, &registered, nullptr),
                "registering memory"));
  Owned<fid_mr> owned(registered);
  const bool by_address = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  const std::uint64_t key = fi_mr_key(registered);
  auto bytes = seal_envelope({.kind = kKeyKind,
                              .generation = generation,
                              .address = by_address ? reinterpret_cast<std::uint64_t>(memory.data()) : 0,
                              .bytes = memory.size()},
                             bytes_of_head(key));
  return std::make_unique<OfiMemory>(std::move(owned), std::move(bytes));
}

long OfiNetwork::start(Operation& p) {
  const fi_addr_t peer = p.endpoint->address();
  switch (p.kind) {
    case Operation::Kind::kSend:
      return fi_tsend(endpoint_.get(), p.data, p.bytes, nullptr, peer, p.tag, &p.context);
    case Operation::Kind::kReceive:
      return fi_trecv(endpoint_.get(), p.data, p.bytes, nullptr, FI_ADDR_UNSPEC, p.tag, 0, &p.context);
    case Operation::Kind::kPut:
      return fi_write(endpoint_.get(), p.data, p.bytes, nullptr, peer, p.remote, p.key, &p.context);
    case Operation::Kind::kGet:
      return fi_read(endpoint_.get(), p.data, p.bytes, nullptr, peer, p.remote, p.key, &p.context);
    case Operation::Kind::kFlush:
      break;
  }
  return 0;
}

Status OfiNetwork::begin(OfiEndpoint& endpoint, Operation operation) {
  operation.endpoint = &endpoint;
  if (operation.kind == Operation::Kind::kFlush) {
    flushes_.push_back(std::move(operation));
    flushes_.back().self = std::prev(flushes_.end());
    end_flushes(endpoint);
    return {};
  }
  // In the order of their endpoint: kept operations go first.
  const bool waits = endpoint.kept > 0;
  Operations& list = waits ? kept_ : in_flight_;
  list.push_back(std::move(operation));
  Operation& begun = list.back();
  begun.self = std::prev(list.end());
  const long started = waits ? -FI_EAGAIN : start(begun);
  if (started == 0) return {};
  if (started == -FI_EAGAIN) {
    if (!waits) kept_.splice(kept_.end(), in_flight_, begun.self);
    ++endpoint.kept;
    return {};
  }
  Status status = status_of(started, "beginning a transfer");
  in_flight_.erase(begun.self);
  return status;
}

// A peer that takes nothing, or is gone, holds up nobody else.
void OfiNetwork::begin_kept() {
  std::vector<const OfiEndpoint*> full;
  for (auto it = kept_.begin(); it != kept_.end();) {
    Operation& operation = *it++;
    OfiEndpoint* const endpoint = operation.endpoint;
    if (std::find(full.begin(), full.end(), endpoint) != full.end()) continue;
    long started = -FI_ECANCELED;
    if (endpoint != nullptr && endpoint->status().ok()) started = start(operation);
    if (started == -FI_EAGAIN) {
      full.push_back(endpoint);
      continue;
    }
    if (endpoint != nullptr) --endpoint->kept;
    Operations& list = started == 0 ? in_flight_ : ended_;
    list.splice(list.end(), kept_, operation.self);
    operation.status = status_of(started, "beginning a transfer");
  }
}

void OfiNetwork::end(Operation& operation, Status status) {
  operation.status = std::move(status);
  ended_.splice(ended_.end(), in_flight_, operation.self);
  if (operation.endpoint == nullptr || operation.kind != Operation::Kind::kPut) return;
  ++operation.endpoint->puts_ended;
  end_flushes(*operation.endpoint);
}

void OfiNetwork::end_flushes(const OfiEndpoint& endpoint) {
  for (auto it = flushes_.begin(); it != flushes_.end();) {
    const auto flush = it++;
    const bool over =
        flush->endpoint == &endpoint && (endpoint.puts_ended >= flush->puts || !endpoint.status().ok());
    if (over) ended_.splice(ended_.end(), flushes_, flush);
  }
}

void OfiNetwork::end_receives(const OfiEndpoint& endpoint) {
  for (Operation& operation : in_flight_)
    if (operation.endpoint == &endpoint && operation.kind == Operation::Kind::kReceive)
      fi_cancel(&endpoint_->fid, &operation.context);
}

void OfiNetwork::lose(OfiEndpoint& endpoint, Status why) {
  if (!endpoint.status().ok()) return;
  endpoint.fail_with(std::move(why));
  end_receives(endpoint);
  end_flushes(endpoint);
}

void OfiNetwork::disown(OfiEndpoint& endpoint) {
  for (auto it = flushes_.begin(); it != flushes_.end();) {
    const auto flush = it++;
    if (flush->endpoint != &endpoint) continue;
    flush->status = failure(Code::kAborted, "the connection was closed");
    ended_.splice(ended_.end(), flushes_, flush);
  }
  for (Operations* list : {&in_flight_, &kept_, &ended_})
    for (Operation& operation : *list)
      if (operation.endpoint == &endpoint) operation.endpoint = nullptr;
}

void OfiNetwork::take_completions() {
  std::array<fi_cq_tagged_entry, kCompletions> entries;
  while (true) {
    const ssize_t count = fi_cq_read(completions_.get(), entries.data(), entries.size());
    if (count == -FI_EAVAIL) {
      take_error();
      continue;
    }
    if (count <= 0) return;
    for (const fi_cq_tagged_entry& entry : std::span(entries).first(static_cast<std::size_t>(count))) {
      auto& operation = *static_cast<Operation*>(entry.op_context);
      if (operation.kind == Operation::Kind::kReceive) operation.bytes = entry.len;
      end(operation, {});
    }
  }
}

// Only a failed transfer shows that a peer is gone.
void OfiNetwork::take_error() {
  fi_cq_err_entry error{};
  if (fi_cq_readerr(completions_.get(), &error, 0) < 0 || error.op_context == nullptr) return;
  auto& operation = *static_cast<Operation*>(error.op_context);
  OfiEndpoint* const endpoint = operation.endpoint;
  const char* why = fi_strerror(error.err);
  if (error.err == FI_ETRUNC) {
    end(operation,
        failure(Code::kProtocol, "a message came that is longer than its {} bytes of room", operation.bytes));
  } else if (error.err == FI_ECANCELED) {
    end(operation, failure(Code::kAborted, "the connection was closed"));
  } else {
    const Status lost = failure(Code::kPeerLost, "libfabric: {}", why);
    end(operation, lost);
    if (endpoint != nullptr) lose(*endpoint, lost);
  }
}

std::size_t OfiNetwork::progress() {
  take_completions();
  begin_kept();
  std::size_t told = 0;
  for (std::size_t left = ended_.size(); left > 0 && !ended_.empty(); --left, ++told) {
    Operations one;  // a done() may close the endpoint, and begin more
    one.splice(one.end(), ended_, ended_.begin());
    const Operation& operation = one.front();
    const Status failed = operation.endpoint == nullptr ? failure(Code::kAborted, "the connection was closed")
                                                        : operation.endpoint->status();
    const bool open = operation.endpoint == nullptr || failed.ok();
    if (operation.status.ok() && (open || operation.kind != Operation::Kind::kFlush))
      operation.transfer->done({}, operation.bytes);
    else
      operation.transfer->done(failed.ok() ? operation.status : failed, 0);
  }
  return told;
}

bool OfiNetwork::arm() {
  if (!ended_.empty() || !kept_.empty()) return false;
  fid* queue = &completions_->fid;
  return fi_trywait(fabric_.get(), &queue, 1) == 0;
}

std::string OfiNetwork::describe() const {
  const std::uint32_t version = fi_version();
  return fmt::format("libfabric {}.{}: {}", FI_MAJOR(version), FI_MINOR(version),
                     info_->fabric_attr->prov_name);
}

Status open_ofi(NodeIndex here, const InterfaceChoice& choice, std::unique_ptr<Network>* network) {
  MUSTER_RETURN_IF_ERROR(check_index(here));
  auto opened = std::make_unique<OfiNetwork>(here);
  MUSTER_RETURN_IF_ERROR(opened->open(choice));
  *network = std::move(opened);
  return {};
}

}  // namespace
}  // namespace muster::transport

extern "C" __attribute__((visibility("default")))
const muster::transport::NetworkModule muster_network_module{.open = muster::transport::open_ofi};
