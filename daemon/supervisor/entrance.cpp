#include "daemon/supervisor/entrance.hpp"

#include "api/base/log.hpp"

#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

namespace muster::supervisor {

Result<Entrance> Entrance::open(Options options, Kept kept) {
  Entrance entrance(std::move(options));
  const ListenSocket::Rights& rights = entrance.options_.rights;
  const bool takes_over = kept.socket.has_value();
  const Status taken = entrance.take_place(kept);
  if (!takes_over) {
    MUSTER_RETURN_IF_ERROR(taken);
    MUSTER_ASSIGN_OR_RETURN(
        ListenSocket socket,
        ListenSocket::open(entrance.options_.socket_path, rights,
                           entrance.folder(entrance.options_.socket_path, shm::Listener::kLockTries)));
    entrance.socket_.emplace(std::move(socket));
    return entrance;
  }
  if (!taken.ok())
    MUSTER_LOG(kError, "supervisor", "{}; the predecessor's jobs are taken over all the same",
               taken.message());
  entrance.socket_.emplace(*std::move(kept.socket));
  if (kept.managers) entrance.managers_.emplace(*std::move(kept.managers));
  if (entrance.is_managers()) {
    entrance.options_.rights = entrance.socket_->rights().value_or(rights);
  } else if (const Status given = entrance.socket_->give(rights); !given.ok()) {  // settings may have changed
    MUSTER_LOG(kError, "supervisor", "{}", given.message());
  }
  return entrance;
}

// An inherited directory is the daemon's, even if another process has the lock now.
Status Entrance::take_place(Kept& kept) {
  const bool has_directory = !options_.directory.empty();
  if (has_directory && kept.directory && (kept.socket || kept.directory->stands()))
    directory_.emplace(*std::move(kept.directory));
  kept.directory.reset();
  const auto name = PlaceLock::name_of(options_.place());
  const bool fits = kept.lock && (!name || *name == kept.lock->name());  // the parent may be gone too
  if (fits) {
    lock_.emplace(*std::move(kept.lock));
  } else {
    MUSTER_ASSIGN_OR_RETURN(PlaceLock lock, PlaceLock::take(options_.place()));
    lock_.emplace(std::move(lock));
  }
  if (!has_directory || directory_) return {};
  MUSTER_ASSIGN_OR_RETURN(
      RuntimeDirectory directory,
      RuntimeDirectory::make(options_.directory, options_.directory_mode(), shm::Listener::kLockTries));
  directory_.emplace(std::move(directory));
  return {};
}

Status Entrance::check(const Options& options) {
  const auto holder = PlaceLock::holder_of(options.place());
  const bool parents = holder && holder->pid == getppid();
  std::optional<PlaceLock> lock;
  std::optional<RuntimeDirectory> directory;
  shm::Descriptor folder;
  ListenSocket::Folder held;
  const bool there = access(options.directory.c_str(), F_OK) == 0;
  if (parents && !options.directory.empty()) {
    folder.reset(::open(options.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.valid()) held.held = &folder;
  } else if (!parents) {
    MUSTER_ASSIGN_OR_RETURN(PlaceLock taken, PlaceLock::take(options.place()));
    lock.emplace(std::move(taken));
    if (!options.directory.empty()) {
      MUSTER_ASSIGN_OR_RETURN(
          RuntimeDirectory made,
          RuntimeDirectory::make(options.directory, options.directory_mode(), shm::Listener::kLockTries));
      directory.emplace(std::move(made));
      if (directory->locked()) held.held = &directory->descriptor();
    }
  }
  Status status;
  if (const auto socket = ListenSocket::open(options.socket_path, options.rights, held); !socket)
    status = socket.error();
  if (directory && !there) directory->remove();
  return status;
}

Entrance::~Entrance() {
  former_.reset();
  socket_.reset();
  if (options_.transient && directory_) directory_->remove();
}

// Whether the socket lies in the runtime directory, in any spelling. The manager's may lie elsewhere.
bool Entrance::directory_holds(const std::string& socket_path) const {
  if (options_.directory.empty()) return false;
  const std::filesystem::path above = std::filesystem::path(socket_path).parent_path();
  std::error_code gone;
  if (std::filesystem::equivalent(above, options_.directory, gone)) return true;
  const auto name = PlaceLock::name_of(above);
  const auto own = PlaceLock::name_of(options_.directory);
  return name && own && *name == *own;
}

ListenSocket::Folder Entrance::folder(const std::string& socket_path, int lock_tries) const {
  const bool held = directory_ && directory_->locked() && directory_holds(socket_path);
  return {held ? &directory_->descriptor() : nullptr, lock_tries};
}

bool Entrance::look(Instant now) {
  if (lock_ && lock_->held()) {
    lock_->answer();
  } else if (auto lock = PlaceLock::take_if_free(options_.place())) {
    lock_.emplace(*std::move(lock));
  }
  if (socket_->stands()) {
    if (former_ && !former_->has_guest()) former_.reset();
    said_.reset();
    return false;
  }
  const bool managers = socket_->whose() == ListenSocket::Path::kManagers;
  const bool directory_too = directory_ && directory_holds(socket_->path()) && !directory_->stands();
  auto healed = heal();
  if (!healed) {
    if (said_ && now - *said_ < kSilence) return false;
    said_ = now;
    MUSTER_LOG(
        kError, "supervisor",
        "nobody finds the daemon at {} any more, and it cannot be mended: {}; jobs go on, and it is tried "
        "again",
        socket_->path(), healed.error().message());
    return false;
  }
  (managers ? managers_ : former_).emplace(*std::move(socket_));
  socket_.emplace(*std::move(healed));
  said_.reset();
  MUSTER_LOG(kWarning, "supervisor", "{} was removed by somebody else, and has been made again{}",
             directory_too ? fmt::format("the directory {} with the socket in it", directory_->path())
                           : "the socket " + socket_->path(),
             managers ? ". This socket replaces the service manager's; restart its socket unit before it can "
                        "start a daemon again."
                      : "");
  return true;
}

Result<ListenSocket> Entrance::heal() {
  MUSTER_ASSIGN_OR_RETURN(const std::string name, PlaceLock::name_of(options_.place()));
  // The lock of the present place: its parent directory may be another one now.
  if (!lock_ || lock_->name() != name) {
    MUSTER_ASSIGN_OR_RETURN(PlaceLock lock, PlaceLock::take(options_.place(), 1));
    lock_.emplace(std::move(lock));
  }
  if (directory_holds(socket_->path()) && !(directory_ && directory_->stands())) {
    MUSTER_ASSIGN_OR_RETURN(RuntimeDirectory made,
                            directory_
                                ? directory_->again()
                                : RuntimeDirectory::make(options_.directory, options_.directory_mode(), 1));
    directory_.emplace(std::move(made));
  }
  return ListenSocket::open(socket_->path(), options_.rights, folder(socket_->path(), 1));
}

Result<shm::Descriptor> Entrance::accept() const {
  for (const std::optional<ListenSocket>* was : {&former_, &managers_})
    if (*was && (*was)->has_guest()) return (*was)->accept();
  return socket_->accept();
}

void Entrance::believe_managers_stood() {
  if (socket_->whose() == ListenSocket::Path::kManagers) socket_->believe_it_stood();
}

void Entrance::keep_in(DescriptorStore& store, std::set<std::string>& known) {
  std::set<std::string> now;
  const auto keep = [&](const std::string& name, const shm::Descriptor& descriptor) {
    now.insert(name);
    if (known.erase(name) != 0)
      store.know(name, descriptor);
    else if (!stored_.contains(name))
      store.keep(name, descriptor);
  };
  if (lock_ && lock_->held()) keep(lock_->name(), lock_->descriptor());
  if (directory_ && directory_->locked()) keep(directory_->name(), directory_->descriptor());
  for (const std::optional<ListenSocket>* socket : {&managers_, &socket_}) {
    if (!*socket) continue;
    if ((*socket)->whose() == ListenSocket::Path::kManagers) known.insert((*socket)->name());
    keep((*socket)->name(), (*socket)->descriptor());
  }
  for (const std::string& name : stored_)
    if (!now.contains(name)) store.forget(name);
  stored_ = std::move(now);
}

}  // namespace muster::supervisor
