#include "daemon/control/identity.hpp"

#include <cerrno>
#include <limits>

#include <fmt/format.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <nlohmann/json.hpp>

namespace muster::control {
namespace {

constexpr std::string_view kKeyPrefix = "key.";
constexpr unsigned long kPidFromNamespace = _IOR(0xb7, 0x6, int);  // NS_GET_PID_FROM_PIDNS, of Linux 6.11

Status read(const nlohmann::json& json, const char* name, std::uint64_t most, std::uint64_t* target) {
  const auto field = json.find(name);
  if (field == json.end() || !field->is_number_unsigned() || field->get<std::uint64_t>() > most)
    return failure(Code::kBadArgument, "job: {} must be a whole number in 0..{}", name, most);
  *target = field->get<std::uint64_t>();
  return {};
}

}  // namespace

bool Identity::is_gone() const {
  constexpr int kInit = 1;
  if (!handles || pid_namespace == 0) return false;
  // The kernel reveals nothing of a namespace outside the daemon's own: such a namespace only looks empty.
  const shm::Descriptor above(ioctl(handles->pid_namespace.get(), NS_GET_PARENT));
  if (!above.valid()) return false;
  return ioctl(handles->pid_namespace.get(), kPidFromNamespace, kInit) < 0 && errno == ESRCH;
}

std::string text_of(const Account& account) {
  if (account.container == 0) return fmt::format("user {}", account.uid);
  if (account.container == Account::kOwnContainers) return fmt::format("containers of user {}", account.uid);
  return fmt::format("container {}", account.container);
}

Status check_known(const Identity& identity) {
  if (identity.is_known()) return {};
  return failure(Code::kDenied,
                 "the daemon cannot see in which container {} is, and so not which jobs are its own; set "
                 "MUSTER_JOB_KEY, or give the daemon CAP_SYS_PTRACE",
                 fmt::format("user {}", identity.uid));
}

std::string text_of(const Identity& identity) {
  if (identity.is_home()) return fmt::format("user {}", identity.uid);
  if (identity.pid_namespace == Identity::kUnknown)
    return fmt::format("user {} of an unknown place", identity.uid);
  return fmt::format("user {} of container {}", identity.uid,
                     identity.pid_namespace != 0 ? identity.pid_namespace : identity.user_namespace);
}

std::string scope_of(const Actor& actor, std::uint32_t own) {
  const Identity& identity = actor.who;
  if (!actor.key.empty()) return fmt::format("{}{}", kKeyPrefix, actor.key);
  if (!identity.is_home())
    return fmt::format("{}.{}-{}", identity.uid, identity.pid_namespace, identity.user_namespace);
  return identity.uid == own ? "" : fmt::format("{}", identity.uid);
}

std::string_view key_in(std::string_view scope) {
  if (!scope.starts_with(kKeyPrefix)) return {};
  const std::string_view digest = scope.substr(kKeyPrefix.size());
  const bool is_hex = digest.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  return is_hex && digest.size() == kKeyDigestChars ? digest : std::string_view();
}

void write_identity(const Identity& identity, nlohmann::json& json) {
  json["owner_uid"] = identity.uid;
  if (identity.is_home()) return;
  json["owner_pid_namespace"] = identity.pid_namespace;
  json["owner_user_namespace"] = identity.user_namespace;
  json["account_uid"] = identity.account.uid;
  json["account_container"] = identity.account.container;
}

Result<Identity> read_identity(const nlohmann::json& json) {
  constexpr std::uint64_t kUids = std::numeric_limits<std::uint32_t>::max();
  constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t uid = 0;
  MUSTER_RETURN_IF_ERROR(read(json, "owner_uid", kUids, &uid));
  Identity identity(static_cast<std::uint32_t>(uid));
  if (!json.contains("owner_pid_namespace")) return identity;
  std::uint64_t account = 0;
  MUSTER_RETURN_IF_ERROR(read(json, "owner_pid_namespace", kAny, &identity.pid_namespace));
  MUSTER_RETURN_IF_ERROR(read(json, "owner_user_namespace", kAny, &identity.user_namespace));
  MUSTER_RETURN_IF_ERROR(read(json, "account_uid", kUids, &account));
  MUSTER_RETURN_IF_ERROR(read(json, "account_container", kAny, &identity.account.container));
  identity.account.uid = static_cast<std::uint32_t>(account);
  if (!identity.is_home() && identity.account == Account())
    return fail(Code::kBadArgument, "job: a container's account must not be root's");
  return identity;
}

}  // namespace muster::control
