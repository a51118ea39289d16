#include "daemon/supervisor/entrance.hpp"

#include "api/base/log.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace muster::supervisor {

Result<Entrance> Entrance::open(Options options, Kept kept) {
  Entrance entrance(std::move(options));
  const Door::Rights& rights = entrance.options_.rights;
  const bool takes_over = kept.door.has_value();
  const Status taken = entrance.take_place(kept);
  if (!takes_over) {
    MUSTER_RETURN_IF_ERROR(taken);
    MUSTER_ASSIGN_OR_RETURN(Door door, Door::open(entrance.options_.socket_path, rights,
                                                  entrance.folder(shm::Listener::kLockTries)));
    entrance.door_.emplace(std::move(door));
    return entrance;
  }
  if (!taken.ok())
    MUSTER_LOG(kError, "supervisor", "{}; the predecessor's jobs are taken over all the same",
               taken.message());
  entrance.door_.emplace(*std::move(kept.door));
  if (kept.managers) entrance.managers_.emplace(*std::move(kept.managers));
  if (entrance.managers_ || entrance.door_->whose() == Door::Path::kManagers) {
    entrance.options_.rights = entrance.door_->rights().value_or(rights);       // those that the unit says
  } else if (const Status given = entrance.door_->give(rights); !given.ok()) {  // settings may have changed
    MUSTER_LOG(kError, "supervisor", "{}", given.message());
  }
  return entrance;
}

Status Entrance::take_place(Kept& kept) {
  const auto name = PlaceLock::name_of(options_.place());
  const bool fits = kept.lock && (!name || *name == kept.lock->name());  // what is above may be gone too
  if (fits) {
    lock_.emplace(*std::move(kept.lock));
  } else {
    MUSTER_ASSIGN_OR_RETURN(PlaceLock lock, PlaceLock::take(options_.place()));
    lock_.emplace(std::move(lock));
  }
  if (options_.directory.empty()) return {};
  if (kept.directory && (kept.door || kept.directory->stands())) {
    directory_.emplace(*std::move(kept.directory));
    return {};
  }
  kept.directory.reset();
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
  Door::Folder held;
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
  if (const auto door = Door::open(options.socket_path, options.rights, held); !door) status = door.error();
  if (directory && !there) directory->remove();
  return status;
}

Entrance::~Entrance() {
  former_.reset();
  door_.reset();
  if (options_.transient && directory_) directory_->remove();
}

Door::Folder Entrance::folder(int lock_tries) const {
  return {directory_ && directory_->locked() ? &directory_->descriptor() : nullptr, lock_tries};
}

bool Entrance::look(Instant now) {
  if (lock_) lock_->answer();
  const bool folder_stands = !directory_ || directory_->stands();
  if (folder_stands && door_->stands()) {
    if (former_ && !former_->has_guest()) former_.reset();
    said_.reset();
    return false;
  }
  const bool managers = door_->whose() == Door::Path::kManagers;
  auto healed = heal();
  if (!healed) {
    if (said_ && now - *said_ < kSilence) return false;
    said_ = now;
    MUSTER_LOG(
        kError, "supervisor",
        "nobody finds the daemon at {} any more, and it cannot be mended: {}; jobs go on, and it is tried "
        "again",
        door_->path(), healed.error().message());
    return false;
  }
  (managers ? managers_ : former_).emplace(*std::move(door_));
  door_.emplace(*std::move(healed));
  said_.reset();
  MUSTER_LOG(kWarning, "supervisor", "{} was removed by somebody else, and has been made again{}",
             folder_stands ? "the socket " + door_->path()
                           : fmt::format("the directory {} with the socket in it", directory_->path()),
             managers ? ": for the service manager's, which starts no daemon there any more until its socket "
                        "unit is started again"
                      : "");
  return true;
}

Result<Door> Entrance::heal() {
  MUSTER_ASSIGN_OR_RETURN(const std::string name, PlaceLock::name_of(options_.place()));
  // Of the place as it is now: what is above it may be another directory.
  if (!lock_ || lock_->name() != name) {
    MUSTER_ASSIGN_OR_RETURN(PlaceLock lock, PlaceLock::take(options_.place(), 1));
    lock_.emplace(std::move(lock));
  }
  if (!options_.directory.empty() && !(directory_ && directory_->stands())) {
    MUSTER_ASSIGN_OR_RETURN(RuntimeDirectory made,
                            directory_
                                ? directory_->again()
                                : RuntimeDirectory::make(options_.directory, options_.directory_mode(), 1));
    directory_.emplace(std::move(made));
  }
  return Door::open(door_->path(), options_.rights, folder(1));
}

Result<shm::Descriptor> Entrance::accept() const {
  for (const std::optional<Door>* was : {&former_, &managers_})
    if (*was && (*was)->has_guest()) return (*was)->accept();
  return door_->accept();
}

bool Entrance::has_former_guest() const {
  return (former_ && former_->has_guest()) || (managers_ && managers_->has_guest());
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
  for (const std::optional<Door>* door : {&managers_, &door_}) {
    if (!*door) continue;
    if ((*door)->whose() == Door::Path::kManagers) known.insert((*door)->name());
    keep((*door)->name(), (*door)->descriptor());
  }
  for (const std::string& name : stored_)
    if (!now.contains(name)) store.forget(name);
  stored_ = std::move(now);
}

}  // namespace muster::supervisor
