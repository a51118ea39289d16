#include "daemon/supervisor/listener/directory_lock.hpp"

#include "api/base/log.hpp"
#include "api/shm/endpoint.hpp"
#include "daemon/supervisor/base/socket_role.hpp"
#include "daemon/supervisor/listener/identities.hpp"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <xxhash.h>

namespace muster::supervisor {
namespace {

constexpr std::string_view kAbstractPrefix = "muster-";
constexpr std::streamsize kLineMax = 4096;  // of a pidfd's fdinfo

struct Address {
  sockaddr_un name{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

// A zero byte, then the text without a zero at its end.
Address abstract_address(const std::string& name) {
  Address address;
  address.name.sun_family = AF_UNIX;
  const std::string text = fmt::format("{}{}", kAbstractPrefix, name);
  text.copy(address.name.sun_path + 1, sizeof address.name.sun_path - 1);
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return address;
}

shm::Descriptor new_socket() {
  return shm::Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// The result of asking for the lock of a name.
struct Asked {
  shm::Descriptor taken;
  std::optional<DirectoryLock::Holder> holder;
  int error = 0;  // if neither; ECONNREFUSED and EAGAIN may pass
};

// An ordinary user cannot see the namespaces of root's processes, nor of another daemon of his own. But NSpid
// lists a process's number in each pid namespace from ours inwards: a single one means that it is in ours.
bool is_in_our_pid_namespace(const shm::PeerIdentity& peer) {
  std::ifstream facts(fmt::format("/proc/self/fdinfo/{}", peer.pidfd.get()));
  std::string word;
  while (facts >> word && word != "NSpid:") facts.ignore(kLineMax, '\n');
  std::getline(facts, word);
  std::istringstream numbers(word);
  pid_t first = 0, second = 0;
  return numbers >> first && first > 0 && !(numbers >> second);
}

std::optional<DirectoryLock::Holder> ask_holder(const Address& address, int* error) {
  const shm::Descriptor probe = new_socket();
  if (connect(probe.get(), address.get(), address.bytes) != 0) {
    *error = errno;
    return std::nullopt;
  }
  const auto peer = shm::peer_identity(probe);
  if (!peer) {  // it has just ended, or cannot be seen from here
    *error = peer.error().code() == Code::kStale ? ECONNREFUSED : EACCES;
    return std::nullopt;
  }
  DirectoryLock::Holder holder{Identities(Identities::Rule::kWhereHeIs).of(*peer), peer->pid};
  if (!holder.who.is_known() && is_in_our_pid_namespace(*peer)) holder.who = peer->uid;
  return holder;
}

// `known`: the holder, if found before. Each question takes a place in the holder's queue.
Asked ask(const Address& address, std::optional<DirectoryLock::Holder> known) {
  Asked asked;
  shm::Descriptor socket = new_socket();
  if (bind(socket.get(), address.get(), address.bytes) == 0 &&
      listen(socket.get(), DirectoryLock::kAskersMax) == 0) {
    asked.taken = std::move(socket);
    return asked;
  }
  asked.error = errno;
  if (asked.error == EADDRINUSE) asked.holder = known ? known : ask_holder(address, &asked.error);
  return asked;
}

bool counts(const DirectoryLock::Holder& holder) {
  return control::is_governor(holder.who, geteuid());
}

Status refusal(const std::string& place, const DirectoryLock::Holder& holder) {
  return failure(Code::kDuplicate,
                 "{} is served by another musterd already (process {}): use that one, end it with `muster "
                 "shutdown{}`, or choose another place with --directory",
                 place, holder.pid, shm::endpoint_option(place));
}

void warn(const std::string& place, const Asked& asked) {
  const std::string why = asked.holder ? fmt::format("process {} of {} has taken its name and is no daemon",
                                                     asked.holder->pid, control::text_of(asked.holder->who))
                                       : std::strerror(asked.error);
  MUSTER_LOG(
      kWarning, "supervisor",
      "the lock on {} is not to be had: {}; a second daemon there is refused by the lock on the directory "
      "and by the socket alone",
      place, why);
}

}  // namespace

Result<std::string> DirectoryLock::name_of(const std::string& place) {
  const std::filesystem::path path(place);
  const std::string above = path.has_parent_path() ? path.parent_path().string() : ".";
  struct stat facts {};
  if (stat(above.c_str(), &facts) != 0)
    return fail(Code::kNotFound,
                "{} cannot be made in {}: {}; create that directory, or choose another place", place, above,
                std::strerror(errno));
  std::string last = path.filename();
  // Makes the name plain and short enough for a kept descriptor's name.
  constexpr std::size_t kPlainMax = 48;
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  if (last.size() > kPlainMax || last.find_first_not_of(kPlain) != std::string::npos) {
    const XXH128_hash_t hash = XXH3_128bits(last.data(), last.size());
    last = fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }
  return fmt::format("{}{:x}-{:x}-{}", kNamePrefix, facts.st_dev, facts.st_ino, last);
}

Result<DirectoryLock> DirectoryLock::take(const std::string& place, int tries) {
  MUSTER_ASSIGN_OR_RETURN(std::string name, name_of(place));
  const Address address = abstract_address(name);
  for (std::optional<Holder> known;;) {
    Asked asked = ask(address, known);
    known = asked.holder;
    if (asked.taken.valid()) return DirectoryLock(std::move(asked.taken), std::move(name));
    const bool held = asked.holder && counts(*asked.holder);
    const bool may_pass = held || (!asked.holder && (asked.error == ECONNREFUSED || asked.error == EAGAIN));
    if (may_pass && --tries > 0) {
      const timespec pause{.tv_sec = 0, .tv_nsec = 1000000};
      nanosleep(&pause, nullptr);
      continue;
    }
    if (held) return fail(refusal(place, *asked.holder));
    warn(place, asked);
    return DirectoryLock(shm::Descriptor(), std::move(name));
  }
}

std::optional<DirectoryLock> DirectoryLock::take_if_free(const std::string& place) {
  auto name = name_of(place);
  if (!name) return std::nullopt;
  Asked asked = ask(abstract_address(*name), Holder{});
  if (!asked.taken.valid()) return std::nullopt;
  return DirectoryLock(std::move(asked.taken), *std::move(name));
}

std::optional<DirectoryLock> DirectoryLock::adopt(shm::Descriptor socket, const std::string& name) {
  const Address expected = abstract_address(name);
  sockaddr_un address{};
  socklen_t bytes = sizeof address;
  if (!is_listening(socket) ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
      bytes != expected.bytes || std::memcmp(&address, &expected.name, bytes) != 0)
    return std::nullopt;
  // The kernel names the last caller of listen() as the holder.
  if (listen(socket.get(), kAskersMax) != 0) return std::nullopt;
  return DirectoryLock(std::move(socket), name);
}

std::optional<DirectoryLock::Holder> DirectoryLock::holder_of(const std::string& place) {
  const auto name = name_of(place);
  int error = 0;
  const auto holder = name ? ask_holder(abstract_address(*name), &error) : std::nullopt;
  return holder && counts(*holder) ? holder : std::nullopt;
}

void DirectoryLock::answer() const {
  for (int i = 0; held() && i <= kAskersMax; ++i)
    if (!shm::Descriptor(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)).valid()) return;
}

}  // namespace muster::supervisor
