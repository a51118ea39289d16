#include "daemon/supervisor/base/descriptor_store.hpp"

#include "api/base/log.hpp"

#include <charconv>
#include <cstring>
#include <string_view>

namespace muster::supervisor {
namespace {

constexpr long kInheritedMax = 65536;

// A whole number, or -1.
long number_of(const char* text) {
  if (text == nullptr) return -1;
  long value = -1;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  return error == std::errc() && stop == end ? value : -1;
}

}  // namespace

std::vector<std::string> inherited_names(const char* listen_pid, const char* listen_fds,
                                         const char* listen_names, long pid) {
  const long count = number_of(listen_fds);
  if (number_of(listen_pid) != pid || count <= 0 || count > kInheritedMax) return {};
  std::vector<std::string> names;
  std::string_view rest = listen_names != nullptr ? listen_names : "";
  for (long i = 0; i < count; ++i) {
    const std::size_t end = rest.find(':');
    names.emplace_back(rest.substr(0, end));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return names;
}

void DescriptorStore::keep(const std::string& name, const shm::Descriptor& descriptor) {
  kept_[name] = descriptor.get();
  if (!notify_) {
    if (!std::exchange(warned_, true))
      MUSTER_LOG(
          kInfo, "supervisor",
          "no service manager keeps descriptors: jobs survive an upgrade, but not a kill of the daemon");
    return;
  }
  if (room_ != 0 && kept_.size() > room_)
    return warn(fmt::format("the service manager keeps {} descriptors", room_));
  const int fd = descriptor.get();
  // FDPOLL=0: the manager keeps a channel that has ended, so the next supervisor can read its last messages.
  if (!notify_("FDSTORE=1\nFDPOLL=0\nFDNAME=" + name, std::span(&fd, 1)))
    warn("the service manager did not take a descriptor");
}

void DescriptorStore::know(const std::string& name, const shm::Descriptor& descriptor) {
  kept_[name] = descriptor.get();
}

void DescriptorStore::forget(const std::string& name) {
  if (kept_.erase(name) != 0) discard(name);
}

void DescriptorStore::discard(const std::string& name) {
  if (notify_) notify_("FDSTOREREMOVE=1\nFDNAME=" + name, {});
}

void DescriptorStore::forget_all() {
  for (const auto& [name, fd] : kept_) discard(name);
  kept_.clear();
}

void DescriptorStore::warn(const std::string& why) {
  if (std::exchange(warned_, true)) return;
  MUSTER_LOG(
      kWarning, "supervisor",
      "{}: what is beyond does not survive a kill of the daemon; raise FileDescriptorStoreMax of its unit",
      why);
}

}  // namespace muster::supervisor
