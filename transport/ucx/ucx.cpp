// A Network over UCX (ucp): messages by tag, writes and reads by remote keys.
// Source: the UCP API of UCX 1.13, https://openucx.readthedocs.io/en/v1.13.x/.
#include "transport/endpoint/envelope.hpp"
#include "transport/endpoint/library.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <list>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>

namespace muster::transport {
namespace {

// From this size on UCX moves a message only once its receive is there (rendezvous), and ends both with their
// endpoint. If only a part of a shorter message has come, nothing ever ends its receive.
constexpr std::size_t kRendezvousBytes = 64 << 10;
ucp_tag_t greeting_tag(NodeIndex sender) {
  return whole_tag(sender, kMessageTagMax + 1);
}

constexpr int kTurnsToEnd = 10'000;
constexpr std::uint64_t kMakeUpMax = 64;  // endpoints in one call of connect()
constexpr ucp_tag_t kWholeTag = std::numeric_limits<ucp_tag_t>::max();

constexpr std::uint64_t kAddressKind = 0x3252444158435555ULL;
constexpr std::uint64_t kKeyKind = 0x3159454b58435555ULL;

Status status_of(ucs_status_t status, const char* what) {
  if (status == UCS_OK) return {};
  const Code code = status == UCS_ERR_NO_MEMORY || status == UCS_ERR_NO_RESOURCE ? Code::kNoResource
                    : status == UCS_ERR_INVALID_PARAM                            ? Code::kBadArgument
                                                                                 : Code::kInternal;
  return failure(code, "UCX: {}: {}", what, ucs_status_string(status));
}

class UcxNetwork;
class UcxEndpoint;

class UcxMemory final : public RegisteredMemory {
 public:
  UcxMemory(ucp_context_h context, ucp_mem_h memory, std::vector<std::byte> key)
      : context_(context), memory_(memory), key_(std::move(key)) {}
  ~UcxMemory() override { ucp_mem_unmap(context_, memory_); }
  UcxMemory(const UcxMemory&) = delete;
  UcxMemory& operator=(const UcxMemory&) = delete;
  Bytes key() const noexcept override { return key_; }

 private:
  ucp_context_h context_;
  ucp_mem_h memory_;
  std::vector<std::byte> key_;
};

class UcxRemoteMemory final : public RemoteMemory {
 public:
  UcxRemoteMemory(ucp_rkey_h key, const Envelope& head) : key_(key), head_(head) {}
  ~UcxRemoteMemory() override { ucp_rkey_destroy(key_); }
  UcxRemoteMemory(const UcxRemoteMemory&) = delete;
  UcxRemoteMemory& operator=(const UcxRemoteMemory&) = delete;
  std::uint64_t bytes() const noexcept override { return head_.bytes; }
  ucp_rkey_h key() const { return key_; }
  const Envelope& head() const { return head_; }

 private:
  ucp_rkey_h key_;
  const Envelope head_;
};

class UcxEndpoint final : public Endpoint {
 public:
  UcxEndpoint(UcxNetwork& network, NodeIndex peer) : network_(network), peer_(peer) {}
  ~UcxEndpoint() override;
  UcxEndpoint(const UcxEndpoint&) = delete;
  UcxEndpoint& operator=(const UcxEndpoint&) = delete;

  Status connect(const ucp_address_t* address);

  NodeIndex peer() const noexcept override { return peer_; }
  Status status() const override { return failed_; }
  Status send(MessageTag tag, Bytes from, Transfer& transfer) override;
  Status receive(MessageTag tag, WritableBytes into, Transfer& transfer) override;
  Result<std::unique_ptr<RemoteMemory>> open_memory(Bytes key) override;
  Status put(Bytes from, const RemoteMemory& memory, std::uint64_t offset, Transfer& transfer) override;
  Status get(WritableBytes into, const RemoteMemory& memory, std::uint64_t offset,
             Transfer& transfer) override;
  Status flush(Transfer& transfer) override;

 private:
  Status ready(MessageTag tag = 0) const;
  Status greet();

  UcxNetwork& network_;
  const NodeIndex peer_;
  ucp_ep_h endpoint_ = nullptr;
  Status failed_;
};

class UcxNetwork final : public Network {
 public:
  // One operation that UCX has not ended yet, or whose end is not reported yet.
  struct Operation {
    UcxNetwork* network = nullptr;
    const UcxEndpoint* endpoint = nullptr;  // null: it was closed
    Transfer* transfer = nullptr;           // null: no object gets its end
    void* request = nullptr;                // UCX's; null: it has ended
    std::size_t bytes = 0;  // what was asked; of a receive that has ended: the length of its message
    bool receives = false;
    bool over = false;  // and not reported yet
    Status status{};
    std::list<Operation>::iterator self{};
  };
  using Operations = std::list<Operation>;

  explicit UcxNetwork(NodeIndex here) : here_(here) {}
  ~UcxNetwork() override;
  UcxNetwork(const UcxNetwork&) = delete;
  UcxNetwork& operator=(const UcxNetwork&) = delete;

  Status open(const InterfaceChoice& choice);

  Bytes address() const noexcept override { return address_; }
  Result<std::unique_ptr<Endpoint>> connect(NodeIndex peer, Bytes address) override;
  Result<std::unique_ptr<RegisteredMemory>> register_memory(WritableBytes memory) override;
  std::size_t progress() override;
  bool arm() override;
  int descriptor() const noexcept override { return descriptor_; }
  std::size_t freed_on_close_from() const noexcept override { return kRendezvousBytes; }
  std::string describe() const override;

  ucp_worker_h worker() const { return worker_; }
  NodeIndex here() const { return here_; }

  // How many endpoints one worker has made for another. UCX joins the n-th endpoint of a worker with the n-th
  // of the other worker. If the two numbers differ, long messages go to endpoints that their owner has
  // closed, and UCX cancels their receives. So an address tells the numbers of its worker. The worker with
  // the smaller number makes up: it makes endpoints and closes them. Source: ucp_ep_match_get_sn() and
  // ucp_tag_rndv_process_rts() of UCX 1.13.
  struct Made {
    std::uint64_t worker = 0;  // the other one
    std::uint64_t endpoints = 0;
  };
  // The body of an address: this, UCX's own bytes, and Made for each peer.
  struct AddressHead {
    std::uint64_t worker = 0;
    std::uint64_t own_bytes = 0;
  };

  // Before the call to UCX that begins an operation; its `user_data` is the entry.
  Operation& enter(const UcxEndpoint& endpoint, Transfer* transfer, std::size_t bytes);
  // Takes the result of that call: done at once, under way, or an error, which ends the entry.
  Status began(Operation& operation, ucs_status_ptr_t request);
  void end(Operation& operation, Status status);
  // A receive waits for a tag, not for an endpoint: nothing ends it when its peer is gone.
  void end_receives(const UcxEndpoint& endpoint);
  // From here on all operations of the endpoint end as aborted.
  void disown(const UcxEndpoint& endpoint);
  void close(ucp_ep_h endpoint) const;
  void peer_lost(const UcxEndpoint& endpoint) { lost_.push_back(&endpoint); }

  std::byte greeting{};  // sent and received by all endpoints; nobody reads it

 private:
  void write_address();
  // Brings the number up to `endpoints`, or by kMakeUpMax: then it is kNoResource, and the next attempt goes
  // on.
  Status make_up(Made& made, std::uint64_t endpoints, const ucp_address_t* address) const;

  const NodeIndex here_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::vector<std::byte> own_;  // UCX's own address
  std::vector<std::byte> address_;
  std::uint64_t id_ = 0;                // of the worker
  std::map<std::uint32_t, Made> made_;  // by peer, for its latest worker
  std::uint64_t generation_ = 0;        // of the last key
  Operations in_flight_;
  Operations ended_;
  std::vector<const UcxEndpoint*> lost_;
};

void on_ended(void* request, ucs_status_t status, void* user) {
  auto& operation = *static_cast<UcxNetwork::Operation*>(user);
  ucp_request_free(request);
  operation.request = nullptr;
  operation.network->end(operation, status_of(status, "a transfer"));
}

void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* user) {
  auto& operation = *static_cast<UcxNetwork::Operation*>(user);
  Status told = status == UCS_ERR_MESSAGE_TRUNCATED
                    ? failure(Code::kProtocol, "a message of {} bytes came where there is room for {}",
                              info->length, operation.bytes)
                    : status_of(status, "a receive");
  if (told.ok()) operation.bytes = info->length;
  ucp_request_free(request);
  operation.request = nullptr;
  operation.network->end(operation, std::move(told));
}

ucp_request_param_t parameters(UcxNetwork::Operation& operation) {
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.send = on_ended;
  param.user_data = &operation;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  return param;
}

// The caller sets its err_handler.
ucp_ep_params_t endpoint_at(const ucp_address_t* address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = address;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  return params;
}

// ---- endpoint ----------------------------------------------------------------------------------

UcxEndpoint::~UcxEndpoint() {
  network_.end_receives(*this);
  network_.disown(*this);
  if (endpoint_ != nullptr) network_.close(endpoint_);
}

Status UcxEndpoint::connect(const ucp_address_t* address) {
  ucp_ep_params_t params = endpoint_at(address);
  params.err_handler.cb = [](void* self, ucp_ep_h, ucs_status_t status) {
    auto& endpoint = *static_cast<UcxEndpoint*>(self);
    if (!endpoint.failed_.ok()) return;
    endpoint.failed_ = failure(Code::kPeerLost, "UCX: {}", ucs_status_string(status));
    endpoint.network_.peer_lost(endpoint);
  };
  params.err_handler.arg = this;
  MUSTER_RETURN_IF_ERROR(status_of(ucp_ep_create(network_.worker(), &params, &endpoint_), "connecting"));
  return greet();
}

// An acknowledged message makes the two ends of UCX exchange their names. Else they would do so with the
// first long message; and if one of them closes meanwhile, UCX 1.13 ends the process of the other.
Status UcxEndpoint::greet() {
  UcxNetwork::Operation& heard = network_.enter(*this, nullptr, 1);
  heard.receives = true;
  ucp_request_param_t param = parameters(heard);
  param.cb.recv = on_received;
  param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  MUSTER_RETURN_IF_ERROR(network_.began(heard, ucp_tag_recv_nbx(network_.worker(), &network_.greeting, 1,
                                                                greeting_tag(peer_), kWholeTag, &param)));
  UcxNetwork::Operation& said = network_.enter(*this, nullptr, 1);
  param = parameters(said);
  return network_.began(
      said, ucp_tag_send_sync_nbx(endpoint_, &network_.greeting, 1, greeting_tag(network_.here()), &param));
}

Status UcxEndpoint::ready(MessageTag tag) const {
  MUSTER_RETURN_IF_ERROR(check_tag(tag));
  return failed_;
}

Status UcxEndpoint::send(MessageTag tag, Bytes from, Transfer& transfer) {
  MUSTER_RETURN_IF_ERROR(ready(tag));
  UcxNetwork::Operation& operation = network_.enter(*this, &transfer, from.size());
  const ucp_request_param_t param = parameters(operation);
  const ucp_tag_t whole = whole_tag(network_.here(), tag);
  return network_.began(operation, ucp_tag_send_nbx(endpoint_, from.data(), from.size(), whole, &param));
}

Status UcxEndpoint::receive(MessageTag tag, WritableBytes into, Transfer& transfer) {
  MUSTER_RETURN_IF_ERROR(ready(tag));
  UcxNetwork::Operation& operation = network_.enter(*this, &transfer, into.size());
  operation.receives = true;
  ucp_request_param_t param = parameters(operation);
  // If a receive ends within the call, UCX 1.13 reports its length to the callback alone.
  param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = on_received;
  const ucp_tag_t whole = whole_tag(peer_, tag);
  return network_.began(
      operation, ucp_tag_recv_nbx(network_.worker(), into.data(), into.size(), whole, kWholeTag, &param));
}

Result<std::unique_ptr<RemoteMemory>> UcxEndpoint::open_memory(Bytes key) {
  MUSTER_RETURN_IF_ERROR(ready());
  MUSTER_ASSIGN_OR_RETURN(const Envelope head, open_envelope(key, kKeyKind, "key of UCX"));
  ucp_rkey_h unpacked = nullptr;
  MUSTER_RETURN_IF_ERROR(status_of(ucp_ep_rkey_unpack(endpoint_, body_of_envelope(key).data(), &unpacked),
                                   "reading a peer's key"));
  return std::make_unique<UcxRemoteMemory>(unpacked, head);
}

Status UcxEndpoint::put(Bytes from, const RemoteMemory& memory, std::uint64_t offset, Transfer& transfer) {
  MUSTER_RETURN_IF_ERROR(ready());
  const auto& remote = static_cast<const UcxRemoteMemory&>(memory);
  MUSTER_RETURN_IF_ERROR(check_within(remote.head(), offset, from.size()));
  const std::uint64_t place = remote.head().address + offset;
  UcxNetwork::Operation& operation = network_.enter(*this, &transfer, from.size());
  const ucp_request_param_t param = parameters(operation);
  return network_.began(operation,
                        ucp_put_nbx(endpoint_, from.data(), from.size(), place, remote.key(), &param));
}

Status UcxEndpoint::get(WritableBytes into, const RemoteMemory& memory, std::uint64_t offset,
                        Transfer& transfer) {
  MUSTER_RETURN_IF_ERROR(ready());
  const auto& remote = static_cast<const UcxRemoteMemory&>(memory);
  MUSTER_RETURN_IF_ERROR(check_within(remote.head(), offset, into.size()));
  const std::uint64_t place = remote.head().address + offset;
  UcxNetwork::Operation& operation = network_.enter(*this, &transfer, into.size());
  const ucp_request_param_t param = parameters(operation);
  return network_.began(operation,
                        ucp_get_nbx(endpoint_, into.data(), into.size(), place, remote.key(), &param));
}

Status UcxEndpoint::flush(Transfer& transfer) {
  MUSTER_RETURN_IF_ERROR(ready());
  UcxNetwork::Operation& operation = network_.enter(*this, &transfer, 0);
  const ucp_request_param_t param = parameters(operation);
  return network_.began(operation, ucp_ep_flush_nbx(endpoint_, &param));
}

// ---- network -----------------------------------------------------------------------------------

// The devices of the choice as UCX names them; empty: all.
std::string devices_of(const InterfaceChoice& choice) {
  if (choice.interface.empty() || std::getenv("UCX_NET_DEVICES") != nullptr) return {};
  std::string list = choice.interface;
  for (const NetworkDevice& device : choice.rdma) list += "," + device.label();
  return list;
}

// Selects one version of IP for an interface that has both. UCX 1.13 takes it from its environment alone.
void prefer_version_of(const IpAddress& address) {
  static const bool said = std::getenv("UCX_TCP_AF_PRIO") != nullptr;
  if (!said) setenv("UCX_TCP_AF_PRIO", address.six ? "inet6,inet" : "inet,inet6", 1);
}

// UCX only warns of an interface that it does not have, and goes on with shared memory alone. It takes
// interfaces from /sys/class/net, which may belong to another network namespace. So this function searches
// UCX's own address for one of the interface's addresses. Loopback addresses are not in it.
Status check_address(const InterfaceChoice& choice, Bytes own) {
  const bool known = choice.address && !choice.address->loopback() && choice.rdma.empty() &&
                     std::getenv("UCX_TLS") == nullptr;
  if (!known) return {};
  for (const IpAddress& address : choice.addresses) {
    const auto good = std::as_bytes(std::span(address.bytes)).first(address.six ? 16 : 4);
    if (std::search(own.begin(), own.end(), good.begin(), good.end()) != own.end()) return {};
  }
  return failure(
      Code::kUnsupported,
      "UCX does not use interface {} with address {}, which is not in its /sys/class/net; name another "
      "in cluster.interfaces, mount the /sys of this network namespace, or set cluster.network: ofi",
      choice.interface, choice.address->text());
}

Status UcxNetwork::open(const InterfaceChoice& choice) {
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP;
  params.name = "muster";
  if (choice.address) prefer_version_of(*choice.address);
  ucp_config_t* config = nullptr;
  MUSTER_RETURN_IF_ERROR(status_of(ucp_config_read(nullptr, nullptr, &config), "its configuration"));
  ucs_status_t said = ucp_config_modify(config, "RNDV_THRESH", std::to_string(kRendezvousBytes).c_str());
  const std::string devices = devices_of(choice);
  if (said == UCS_OK && !devices.empty()) said = ucp_config_modify(config, "NET_DEVICES", devices.c_str());
  const Status begun = status_of(said == UCS_OK ? ucp_init(&params, config, &context_) : said, "beginning");
  ucp_config_release(config);
  if (!begun.ok()) return failure(Code::kUnsupported, "{}", begun.message());
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  MUSTER_RETURN_IF_ERROR(status_of(ucp_worker_create(context_, &worker, &worker_), "opening its links"));
  MUSTER_RETURN_IF_ERROR(status_of(ucp_worker_get_efd(worker_, &descriptor_), "its descriptor"));
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  MUSTER_RETURN_IF_ERROR(status_of(ucp_worker_get_address(worker_, &address, &bytes), "its address"));
  const Bytes own(reinterpret_cast<const std::byte*>(address), bytes);
  own_.assign(own.begin(), own.end());
  ucp_worker_release_address(worker_, address);
  // UCX's address has a random number, so this sum is the worker's alone.
  id_ = open_envelope(seal_envelope({.kind = kAddressKind}, own_), kAddressKind, "address of UCX")->sum;
  write_address();
  return devices.empty() ? Status() : check_address(choice, own_);
}

void UcxNetwork::write_address() {
  std::vector<std::byte> body;
  const auto add = [&body](Bytes bytes) { body.insert(body.end(), bytes.begin(), bytes.end()); };
  const AddressHead head{id_, own_.size()};
  add(std::as_bytes(std::span(&head, 1)));
  add(own_);
  for (const auto& [peer, made] : made_) add(std::as_bytes(std::span(&made, 1)));
  address_ = seal_envelope({.kind = kAddressKind}, body);
}

// UCX 1.13 crashes if a worker ends while it still discards operations of closed endpoints.
UcxNetwork::~UcxNetwork() {
  for (int turns = 0; worker_ != nullptr && !in_flight_.empty() && turns < kTurnsToEnd; ++turns)
    ucp_worker_progress(worker_);
  for (Operation& operation : in_flight_)
    if (operation.request != nullptr) ucp_request_free(operation.request);
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

Result<std::unique_ptr<Endpoint>> UcxNetwork::connect(NodeIndex peer, Bytes address) {
  MUSTER_RETURN_IF_ERROR(check_index(peer));
  if (const auto head = open_envelope(address, kAddressKind, "address of UCX"); !head)
    return fail(head.error());
  Bytes rest = body_of_envelope(address);
  AddressHead head;
  const bool has_head = rest.size() >= sizeof(head);
  if (has_head) std::memcpy(&head, rest.data(), sizeof(head));
  if (!has_head || head.own_bytes > rest.size() - sizeof(head) || head.own_bytes == 0)
    return fail(Code::kBadArgument, "this is no address of UCX");
  const Bytes own = rest.subspan(sizeof(head), head.own_bytes);
  std::uint64_t made_there = 0;
  for (rest = rest.subspan(sizeof(head) + own.size()); rest.size() >= sizeof(Made);
       rest = rest.subspan(sizeof(Made))) {
    Made made;
    std::memcpy(&made, rest.data(), sizeof(made));
    if (made.worker == id_) made_there = made.endpoints;
  }
  Made& made = made_[peer.value];
  if (made.worker != head.worker) made = {head.worker, 0};
  const auto* const remote = reinterpret_cast<const ucp_address_t*>(own.data());
  const Status even = make_up(made, made_there, remote);
  if (even.ok()) ++made.endpoints;  // of the one that is made now
  write_address();
  MUSTER_RETURN_IF_ERROR(even);
  auto endpoint = std::make_unique<UcxEndpoint>(*this, peer);
  MUSTER_RETURN_IF_ERROR(endpoint->connect(remote));
  return endpoint;
}

// UCX counts an endpoint also if making it fails.
Status UcxNetwork::make_up(Made& made, std::uint64_t endpoints, const ucp_address_t* address) const {
  ucp_ep_params_t params = endpoint_at(address);
  params.err_handler.cb = [](void*, ucp_ep_h, ucs_status_t) {};
  for (std::uint64_t each = 0; made.endpoints < endpoints; ++each) {
    if (each == kMakeUpMax)
      return failure(Code::kNoResource, "UCX: the peer has made {} endpoints, and this node {}", endpoints,
                     made.endpoints);
    ++made.endpoints;
    ucp_ep_h endpoint = nullptr;
    MUSTER_RETURN_IF_ERROR(status_of(ucp_ep_create(worker_, &params, &endpoint), "connecting"));
    close(endpoint);
  }
  return {};
}

Result<std::unique_ptr<RegisteredMemory>> UcxNetwork::register_memory(WritableBytes memory) {
  ucp_mem_map_params_t params{};
  params.field_mask =
      UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = memory.data();
  params.length = memory.size();
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  ucp_mem_h handle = nullptr;
  MUSTER_RETURN_IF_ERROR(status_of(ucp_mem_map(context_, &params, &handle), "registering memory"));
  void* packed = nullptr;
  std::size_t bytes = 0;
  if (const Status status = status_of(ucp_rkey_pack(context_, handle, &packed, &bytes), "making a key");
      !status.ok()) {
    ucp_mem_unmap(context_, handle);
    return fail(status);
  }
  auto key = seal_envelope({.kind = kKeyKind,
                            .generation = ++generation_,
                            .address = reinterpret_cast<std::uint64_t>(memory.data()),
                            .bytes = memory.size()},
                           {static_cast<const std::byte*>(packed), bytes});
  ucp_rkey_buffer_release(packed);
  return std::make_unique<UcxMemory>(context_, handle, std::move(key));
}

UcxNetwork::Operation& UcxNetwork::enter(const UcxEndpoint& endpoint, Transfer* transfer, std::size_t bytes) {
  Operation& operation = in_flight_.emplace_back(
      Operation{.network = this, .endpoint = &endpoint, .transfer = transfer, .bytes = bytes});
  operation.self = std::prev(in_flight_.end());
  return operation;
}

Status UcxNetwork::began(Operation& operation, ucs_status_ptr_t request) {
  if (UCS_PTR_IS_ERR(request)) {
    const Status status = status_of(UCS_PTR_STATUS(request), "beginning a transfer");
    in_flight_.erase(operation.self);
    return status;
  }
  if (operation.over) return {};  // by its callback, within the call
  if (request == nullptr)
    end(operation, {});
  else
    operation.request = request;
  return {};
}

void UcxNetwork::end(Operation& operation, Status status) {
  operation.status = std::move(status);
  operation.over = true;
  ended_.splice(ended_.end(), in_flight_, operation.self);
}

void UcxNetwork::end_receives(const UcxEndpoint& endpoint) {
  std::vector<void*> requests;
  for (const Operation& operation : in_flight_)
    if (operation.endpoint == &endpoint && operation.receives) requests.push_back(operation.request);
  for (void* request : requests) ucp_request_cancel(worker_, request);  // calls on_received, now or soon
}

void UcxNetwork::disown(const UcxEndpoint& endpoint) {
  std::erase(lost_, &endpoint);
  for (Operations* list : {&in_flight_, &ended_})
    for (Operation& operation : *list)
      if (operation.endpoint == &endpoint) operation.endpoint = nullptr;
}

// By force: it sends nothing to the peer, and waits for none.
void UcxNetwork::close(ucp_ep_h endpoint) const {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint, &param);
  if (!UCS_PTR_IS_PTR(request)) return;
  while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker_);
  ucp_request_free(request);
}

std::size_t UcxNetwork::progress() {
  while (ucp_worker_progress(worker_) != 0) {
  }
  for (const UcxEndpoint* endpoint : std::exchange(lost_, {})) end_receives(*endpoint);
  std::size_t told = 0;
  for (std::size_t left = ended_.size(); left > 0 && !ended_.empty(); --left, ++told) {
    Operations one;  // a done() may close the endpoint, and begin more
    one.splice(one.end(), ended_, ended_.begin());
    const Operation& operation = one.front();
    if (operation.transfer == nullptr) continue;
    if (operation.status.ok()) {
      operation.transfer->done({}, operation.bytes);
    } else if (operation.endpoint == nullptr) {
      operation.transfer->done(failure(Code::kAborted, "the connection was closed"), 0);
    } else {
      const Status& failed = operation.endpoint->status();
      operation.transfer->done(failed.ok() ? operation.status : failed, 0);
    }
  }
  return told;
}

bool UcxNetwork::arm() {
  if (!ended_.empty()) return false;
  return ucp_worker_arm(worker_) == UCS_OK;
}

std::string UcxNetwork::describe() const {
  return fmt::format("UCX {}", ucp_get_version_string());
}

Status open_ucx(NodeIndex here, const InterfaceChoice& choice, std::unique_ptr<Network>* network) {
  MUSTER_RETURN_IF_ERROR(check_index(here));
  // Else UCX warns of each message of a lost connection that no receive takes.
  if (std::getenv("UCX_LOG_LEVEL") == nullptr) ucs_global_opts_set_value("LOG_LEVEL", "error");
  auto opened = std::make_unique<UcxNetwork>(here);
  MUSTER_RETURN_IF_ERROR(opened->open(choice));
  *network = std::move(opened);
  return {};
}

}  // namespace
}  // namespace muster::transport

extern "C" __attribute__((visibility("default")))
const muster::transport::NetworkModule muster_network_module{.open = muster::transport::open_ucx};
