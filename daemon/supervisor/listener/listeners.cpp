#include "daemon/supervisor/listener/listeners.hpp"

#include "api/base/log.hpp"
#include "api/shm/endpoint.hpp"

#include <filesystem>

#include <unistd.h>

namespace muster::supervisor {
namespace {

const char* name_of(Door door) {
  return door == Door::kRanks ? "the ranks' socket" : "the control socket";
}

}  // namespace

std::string Listeners::Options::path_of(Door door) const {
  return door == Door::kRanks ? ranks_socket : shm::control_socket(directory);
}

Result<Listeners> Listeners::open(Options options, Kept kept) {
  Listeners listeners(std::move(options));
  const bool takes_over = kept.ranks.socket.has_value();
  const Status taken = listeners.take_place(kept);
  if (!takes_over) MUSTER_RETURN_IF_ERROR(taken);
  if (!taken.ok())
    MUSTER_LOG(kError, "supervisor", "{}; the predecessor's jobs are taken over all the same",
               taken.message());
  for (const Door door : kDoors) {
    Way& way = listeners.way(door);
    Kept::Sockets& sockets = door == Door::kRanks ? kept.ranks : kept.control;
    if (sockets.managers) way.managers.emplace(*std::move(sockets.managers));
    if (sockets.socket) {
      way.socket.emplace(*std::move(sockets.socket));
      if (way.is_managers()) way.rights = way.socket->rights().value_or(way.rights);
      continue;
    }
    auto opened = listeners.open_at(listeners.options_.path_of(door), way.rights, shm::Listener::kLockTries);
    if (opened)
      way.socket.emplace(*std::move(opened));
    else if (!takes_over)
      return fail(opened.error());
    else
      MUSTER_LOG(kError, "supervisor", "{}; it is tried again", opened.error().message());
  }
  return listeners;
}

// A directory that was taken over is the daemon's, even if another process has the lock now.
Status Listeners::take_place(Kept& kept) {
  if (kept.directory && (kept.ranks.socket || kept.directory->lock_stands()))
    directory_.emplace(*std::move(kept.directory));
  kept.directory.reset();
  const auto name = DirectoryLock::name_of(options_.directory);
  const bool fits = kept.lock && (!name || *name == kept.lock->name());  // the parent may be gone too
  Status locked;
  if (fits) {
    lock_.emplace(*std::move(kept.lock));
  } else if (auto lock = DirectoryLock::take(options_.directory)) {
    lock_.emplace(*std::move(lock));
  } else {
    locked = lock.error();
  }
  if (directory_) {
    const Status mended = directory_->mend(options_.access, shm::Listener::kLockTries);
    return locked.ok() ? mended : locked;
  }
  MUSTER_RETURN_IF_ERROR(locked);
  MUSTER_ASSIGN_OR_RETURN(
      RuntimeDirectory directory,
      RuntimeDirectory::make(options_.directory, options_.access, shm::Listener::kLockTries));
  directory_.emplace(std::move(directory));
  return {};
}

Status Listeners::check(const Options& options) {
  const auto holder = DirectoryLock::holder_of(options.directory);
  if (holder && holder->pid == getppid()) return {};  // the place is the daemon's already
  const bool there = access(options.directory.c_str(), F_OK) == 0;
  Options trial = options;
  trial.transient = !there;
  const auto opened = open(std::move(trial), {});
  return opened ? Status() : opened.error();
}

Listeners::~Listeners() {
  for (Way* way : {&ranks_, &control_}) {
    way->former.reset();
    way->socket.reset();
  }
  if (options_.transient && directory_) directory_->remove();
}

// Opens a socket of ours at that path, which is the door's or a manager's. The folders of the runtime
// directory are under its lock; another folder has one of its own.
Result<ListenSocket> Listeners::open_at(const std::string& path, const ListenSocket::Rights& rights,
                                        int tries) const {
  ListenSocket::Folder folder{nullptr, tries};
  const std::filesystem::path above = std::filesystem::path(path).parent_path();
  std::error_code gone;
  if (directory_ && directory_->stands()) {
    if (std::filesystem::equivalent(above, directory_->path(), gone)) folder.held = &directory_->base();
    if (std::filesystem::equivalent(above, directory_->ranks_folder(), gone))
      folder.held = &directory_->ranks();
  }
  return ListenSocket::open(path, rights, folder);
}

bool Listeners::look(Instant now) {
  if (lock_ && lock_->held()) {
    lock_->answer();
  } else if (auto lock = DirectoryLock::take_if_free(options_.directory)) {
    lock_.emplace(*std::move(lock));
  }
  mend_rights(now);
  for (const Door door : kDoors)
    if (Way& way = this->way(door); way.former && way.stands() && !has_former_client(door))
      way.former.reset();
  if (ranks_.stands() && control_.stands()) {
    said_.reset();
    return false;
  }
  const bool directory_too = !(directory_ && directory_->stands());
  const Status place = heal();
  Status healed;
  bool replaced = false;
  for (const Door door : kDoors) {
    if (way(door).stands()) continue;
    const bool managers = way(door).has_managers();
    const Status mended = place.ok() || managers ? replace(door) : place;
    if (!mended.ok()) {
      healed = mended;
      continue;
    }
    replaced = true;
    MUSTER_LOG(
        kWarning, "supervisor", "{} was removed by somebody else, and has been made again{}",
        directory_too ? fmt::format("the directory {} with {} in it", options_.directory, name_of(door))
                      : fmt::format("{} {}", name_of(door), socket(door)->path()),
        managers ? ". This socket replaces the service manager's; restart its socket unit before it can "
                   "start a daemon again."
                 : "");
  }
  if (healed.ok()) {
    said_.reset();
  } else if (!said_ || now - *said_ >= kSilence) {
    said_ = now;
    MUSTER_LOG(
        kError, "supervisor",
        "nobody finds the daemon at {} any more, and it cannot be mended: {}; jobs go on, and it is tried "
        "again",
        options_.directory, healed.message());
  }
  return replaced;
}

// A service manager's socket has the rights that its unit sets, and one elsewhere those of its place.
Result<bool> Listeners::restore_ranks() const {
  if (!directory_) return false;
  MUSTER_ASSIGN_OR_RETURN(bool changed, directory_->restore_ranks());
  const bool ours = !ranks_.is_managers() && options_.ranks_socket == shm::ranks_socket(options_.directory);
  const auto found = ours ? socket().rights() : std::nullopt;
  if (found && (found->mode != ranks_.rights.mode || found->uid != geteuid())) {
    MUSTER_RETURN_IF_ERROR(socket().give({ranks_.rights.mode, geteuid(), std::nullopt}));
    changed = true;
  }
  return changed;
}

void Listeners::mend_rights(Instant now) {
  const Result<bool> changed = restore_ranks();
  if (changed && !*changed) return;
  if (said_of_rights_ && now - *said_of_rights_ < kSilence) return;
  said_of_rights_ = now;
  if (changed)
    MUSTER_LOG(
        kWarning, "supervisor",
        "somebody has changed owner or mode of {} or of the socket in it, which are restored; mount that "
        "folder read-only into containers",
        directory_->ranks_folder());
  else
    MUSTER_LOG(kError, "supervisor", "{}; end this daemon, and remove it", changed.error().message());
}

// The lock and the directory.
Status Listeners::heal() {
  MUSTER_ASSIGN_OR_RETURN(const std::string name, DirectoryLock::name_of(options_.directory));
  // The lock of the present place: its parent directory may be another one now.
  if (!lock_ || lock_->name() != name) {
    MUSTER_ASSIGN_OR_RETURN(DirectoryLock lock, DirectoryLock::take(options_.directory, 1));
    lock_.emplace(std::move(lock));
  }
  if (directory_) return directory_->stands() ? Status() : directory_->mend(options_.access, 1);
  MUSTER_ASSIGN_OR_RETURN(RuntimeDirectory made,
                          RuntimeDirectory::make(options_.directory, options_.access, 1));
  directory_.emplace(std::move(made));
  return {};
}

// Opens a new socket of ours at the path of one that is gone.
Status Listeners::replace(Door door) {
  Way& way = this->way(door);
  const std::string path = way.socket ? way.socket->path() : options_.path_of(door);
  MUSTER_ASSIGN_OR_RETURN(ListenSocket opened, open_at(path, way.rights, 1));
  if (way.socket) (way.has_managers() ? way.managers : way.former).emplace(*std::move(way.socket));
  way.socket.emplace(std::move(opened));
  return {};
}

Result<shm::Descriptor> Listeners::accept(Door door) const {
  const Way& way = this->way(door);
  if (has_former_client(door)) return way.former->accept();
  if (way.managers && way.managers->has_pending_client()) return way.managers->accept();
  if (!way.socket) return fail(Code::kPending, "there is no socket");
  return way.socket->accept();
}

bool Listeners::has_former_client(Door door) const {
  const Way& way = this->way(door);
  return way.former && way.former->has_pending_client();
}

const ListenSocket* Listeners::socket(Door door) const {
  const Way& way = this->way(door);
  return way.socket ? &*way.socket : nullptr;
}

const ListenSocket* Listeners::managers(Door door) const {
  const Way& way = this->way(door);
  return way.managers ? &*way.managers : nullptr;
}

bool Listeners::managers_stood() const {
  bool any = false;
  for (const Door door : kDoors) {
    const Way& way = this->way(door);
    if (way.has_managers() && !way.socket->has_stood()) return false;
    any = any || way.is_managers();
  }
  return any;
}

void Listeners::believe_managers_stood() {
  for (Way* way : {&ranks_, &control_})
    if (way->has_managers()) way->socket->believe_it_stood();
}

void Listeners::keep_in(DescriptorStore& store, std::set<std::string>& known) {
  std::set<std::string> now;
  const auto keep = [&](const std::string& name, const shm::Descriptor& descriptor) {
    now.insert(name);
    if (known.erase(name) != 0)
      store.know(name, descriptor);
    else if (!stored_.contains(name))
      store.keep(name, descriptor);
  };
  if (lock_ && lock_->held()) keep(lock_->name(), lock_->descriptor());
  if (directory_) keep(directory_->name(), directory_->lock());
  for (const std::optional<ListenSocket>* socket :
       {&ranks_.managers, &ranks_.socket, &control_.managers, &control_.socket}) {
    if (!*socket) continue;
    if ((*socket)->whose() == ListenSocket::Path::kManagers) known.insert((*socket)->name());
    keep((*socket)->name(), (*socket)->descriptor());
  }
  for (const std::string& name : stored_)
    if (!now.contains(name)) store.forget(name);
  stored_ = std::move(now);
}

}  // namespace muster::supervisor
