#include "daemon/supervisor/takeover/restored_descriptors.hpp"

#include "api/base/log.hpp"
#include "api/shm/endpoint.hpp"
#include "daemon/supervisor/base/kept_names.hpp"
#include "daemon/supervisor/base/socket_role.hpp"

#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

namespace muster::supervisor {
namespace {

// The number in a name such as "channel-1f3a", if the name is of that kind.
std::optional<std::uint64_t> number_in(const std::string& name, std::string_view kind) {
  if (!name.starts_with(kind)) return std::nullopt;
  std::uint64_t number = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kind.size(), end, number, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

// The account in a name such as "memory-3e8-0".
std::optional<control::Account> account_in(const std::string& name) {
  const std::size_t cut = name.rfind('-');
  if (cut == std::string::npos) return std::nullopt;
  const auto uid = number_in(name.substr(0, cut), "memory-");
  const auto container = number_in(name.substr(cut), "-");
  if (!uid || !container || *uid > std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
  return control::Account(static_cast<std::uint32_t>(*uid), *container);
}

}  // namespace

RestoredDescriptors::RestoredDescriptors(std::vector<DescriptorStore::Inherited> inherited,
                                         const std::string& runtime_directory) {
  for (DescriptorStore::Inherited& one : inherited) put(std::move(one), runtime_directory);
}

void RestoredDescriptors::put(DescriptorStore::Inherited inherited, const std::string& runtime_directory) {
  const std::string& name = inherited.name;
  if (name == kStateName) return put_first(state, std::move(inherited));
  if (const auto epoch = number_in(name, "channel-"))
    return put_connection(engines[*epoch].channel, std::move(inherited));
  if (const auto epoch = number_in(name, "pidfd-"))
    return put_first(engines[*epoch].pidfd, std::move(inherited));
  if (const auto epoch = number_in(name, "counters-"))
    return put_first(engines[*epoch].counters, std::move(inherited));
  if (const auto epoch = number_in(name, "pids-"))
    return put_first(place_of(*epoch).pid_namespace, std::move(inherited));
  if (const auto epoch = number_in(name, "users-"))
    return put_first(place_of(*epoch).user_namespace, std::move(inherited));
  if (const auto account = account_in(name)) return put_first(memories[*account], std::move(inherited));
  if (const auto id = number_in(name, "owner-")) return put_connection(owners[*id], std::move(inherited));
  if (name.starts_with(DirectoryLock::kNamePrefix)) {
    names.insert(name);
    if (!lock_) lock_ = DirectoryLock::adopt(std::move(inherited.descriptor), name);
  } else if (name.starts_with(RuntimeDirectory::kNamePrefix)) {
    names.insert(name);
    if (!directory_)
      directory_ = RuntimeDirectory::adopt(std::move(inherited.descriptor), runtime_directory, name);
  } else {
    put_listening(std::move(inherited));
  }
}

control::Identity::Handles& RestoredDescriptors::place_of(std::uint64_t epoch) {
  auto& place = engines[epoch].place;
  if (!place) place = std::make_shared<control::Identity::Handles>();
  return *place;
}

void RestoredDescriptors::put_first(shm::Descriptor& target, DescriptorStore::Inherited inherited) {
  names.insert(inherited.name);
  if (!target.valid()) target = std::move(inherited.descriptor);
}

// A descriptor that is no socket may always be readable, and keep the loop busy.
void RestoredDescriptors::put_connection(shm::Descriptor& target, DescriptorStore::Inherited inherited) {
  if (is_connected(inherited.descriptor)) return put_first(target, std::move(inherited));
  names.insert(inherited.name);
  MUSTER_LOG(kWarning, "supervisor", "{} is no connection; it is closed", inherited.name);
}

// With our prefix it is a predecessor's socket. With any other name the manager passes it at each start:
// `control` is for governors, any other for ranks.
void RestoredDescriptors::put_listening(DescriptorStore::Inherited inherited) {
  const bool ours = inherited.name.starts_with(ListenSocket::kNamePrefix);
  if (ours) names.insert(inherited.name);
  auto adopted =
      ListenSocket::adopt(std::move(inherited.descriptor),
                          ours ? ListenSocket::Path::kOurs : ListenSocket::Path::kManagers, inherited.name);
  if (!adopted) {
    MUSTER_LOG(kWarning, "supervisor", "{}: {}", inherited.name, adopted.error().message());
    return;
  }
  const bool control = ours ? adopted->path().ends_with(std::string("/") + shm::kControlSocket)
                            : inherited.name == kManagersControl;
  Found& found = control ? control_ : ranks_;
  std::optional<ListenSocket>& place = ours ? found.ours : found.managers;
  if (!place) place.emplace(*std::move(adopted));
}

// The manager's socket counts before one of ours, since its unit names it. Exception: a socket of ours has
// taken its path, so clients find ours. A socket of ours at another path is useless: the settings have
// changed.
Listeners::Kept::Sockets RestoredDescriptors::choose(Found found, const std::string& path) {
  const bool healed =
      found.ours && found.managers && found.ours->path() == found.managers->path() && found.ours->stands();
  if (healed) return {std::move(found.ours), std::move(found.managers)};
  if (found.managers) return {std::move(found.managers), std::nullopt};
  if (found.ours && found.ours->path() != path) found.ours.reset();
  return {std::move(found.ours), std::nullopt};
}

Listeners::Kept RestoredDescriptors::listeners(const Listeners::Options& options) {
  return {choose(std::move(ranks_), options.path_of(Door::kRanks)),
          choose(std::move(control_), options.path_of(Door::kControl)), std::move(lock_),
          std::move(directory_)};
}

}  // namespace muster::supervisor
