#include "transport/ofi/provider.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

namespace muster::transport {
namespace {

constexpr std::uint32_t kApi = FI_VERSION(1, 17);
constexpr const char* kOverRdma = "verbs;ofi_rxm";
constexpr const char* kOverTcp = "tcp;ofi_rxm";

bool is_set(const char* variable) {
  return std::getenv(variable) != nullptr;
}

OwnedInfo wanted() {
  OwnedInfo hints(fi_allocinfo(), fi_freeinfo);
  if (hints == nullptr) return hints;
  hints->caps =
      FI_MSG | FI_TAGGED | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SEND | FI_RECV;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;  // a put has ended once it is in the peer's memory
  return hints;
}

// libfabric reads these once, with the first look for providers. A longer message than a buffer waits for an
// answer of the peer, which comes behind what the peer sends. libfabric's own choice are more buffers of 16
// KiB.
void choose_buffers() {
  constexpr int kKeep = 0;  // what is set already
  setenv("FI_OFI_RXM_BUFFER_SIZE", "65536", kKeep);
  setenv("FI_OFI_RXM_MSG_RX_SIZE", "128", kKeep);
}

// `provider`: null for any, or for that of FI_PROVIDER. `source`: an address of this node; null: any. Returns
// libfabric's error; 0: *list has what it found.
long find(fi_info& hints, const char* provider, const char* source, OwnedInfo* list) {
  if (provider != nullptr) hints.fabric_attr->prov_name = strdup(provider);
  const std::uint64_t flags = source == nullptr ? 0 : FI_SOURCE | FI_NUMERICHOST;
  static const bool chosen = (choose_buffers(), true);
  static_cast<void>(chosen);
  fi_info* found = nullptr;
  const long error = fi_getinfo(kApi, source, nullptr, flags, &hints, &found);
  list->reset(found);
  std::free(std::exchange(hints.fabric_attr->prov_name, nullptr));
  return error;
}

// Picks one of the choice's RDMA devices, with the address of the choice if one has it; null: there is none.
// libfabric names a domain after its device.
OwnedInfo of_rdma(const fi_info* first, const InterfaceChoice& choice) {
  const fi_info* best = nullptr;
  for (const fi_info* info = first; info != nullptr; info = info->next) {
    const std::string_view domain = info->domain_attr->name == nullptr ? "" : info->domain_attr->name;
    const auto same = [domain](const NetworkDevice& device) { return device.name == domain; };
    if (std::none_of(choice.rdma.begin(), choice.rdma.end(), same)) continue;
    const bool known = info->src_addr != nullptr && info->src_addrlen >= sizeof(sockaddr);
    const auto own = known ? IpAddress::of(*static_cast<const sockaddr*>(info->src_addr)) : std::nullopt;
    if (best == nullptr || (own && own == choice.address)) best = info;
    if (own && own == choice.address) break;
  }
  return {best == nullptr ? nullptr : fi_dupinfo(best), fi_freeinfo};
}

OwnedInfo over_rdma(fi_info& hints, const InterfaceChoice& choice) {
  OwnedInfo list(nullptr, fi_freeinfo);
  if (find(hints, kOverRdma, nullptr, &list) != 0) return {nullptr, fi_freeinfo};
  const bool decides = choice.interface.empty() || is_set("FI_VERBS_IFACE");
  return decides ? std::move(list) : of_rdma(list.get(), choice);
}

}  // namespace

Result<OwnedInfo> find_provider(const InterfaceChoice& choice) {
  const OwnedInfo hints = wanted();
  if (hints == nullptr) return fail(Code::kNoResource, "libfabric: no memory");
  const std::string address = choice.address ? choice.address->text() : "";
  const char* const source = address.empty() || is_set("FI_TCP_IFACE") ? nullptr : address.c_str();
  const bool chosen = is_set("FI_PROVIDER");
  if (!chosen)
    if (OwnedInfo rdma = over_rdma(*hints, choice)) return rdma;
  OwnedInfo list(nullptr, fi_freeinfo);
  long error = find(*hints, chosen ? nullptr : kOverTcp, source, &list);
  // The addresses of a chosen provider may be none of IP.
  if (error != 0 && chosen && source != nullptr) error = find(*hints, nullptr, nullptr, &list);
  if (error == 0) return list;
  return fail(Code::kUnsupported, "libfabric finds no provider of reliable datagrams here, for {}: {}",
              choice.text(), fi_strerror(static_cast<int>(-error)));
}

}  // namespace muster::transport
