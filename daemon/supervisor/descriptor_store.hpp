// DescriptorStore: descriptors that outlive this process with the service manager (sd_notify(3), FDSTORE=1),
// or go with it through an exec.
#pragma once

#include "api/shm/descriptor.hpp"

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace muster::supervisor {

// A line to the service manager, with descriptors. False if it cannot be told.
using Notify = std::function<bool(const std::string& text, std::span<const int> descriptors)>;

// A descriptor that came with this process's start, under the name that a predecessor or the manager gave it.
struct Inherited {
  std::string name;
  shm::Descriptor descriptor;
};

// The names of LISTEN_FDNAMES for LISTEN_FDS descriptors from 3 on, if LISTEN_PID is this process; empty if
// none came. Pure: the variables' values, null where one is not set.
std::vector<std::string> inherited_names(const char* listen_pid, const char* listen_fds,
                                         const char* listen_names, long pid);

// Owns    nothing: a descriptor is its keeper's, who forgets it here before closing it.
// Thread  the supervisor's loop.
// Bound   `room` descriptors, if the manager says how many it takes (FDSTORE in the environment); each
//         descriptor has one name, without colons.
// Fails   never. What the manager does not take is said once: it does not outlive a kill.
class DescriptorStore {
 public:
  DescriptorStore(Notify notify, std::size_t room) : notify_(std::move(notify)), room_(room) {}

  void keep(const std::string& name, const shm::Descriptor& descriptor);
  // One that the manager has already.
  void know(const std::string& name, const shm::Descriptor& descriptor);
  void forget(const std::string& name);
  // Names of a predecessor that nobody needs any more.
  void discard(const std::string& name);
  void forget_all();

  const std::map<std::string, int>& kept() const { return kept_; }

 private:
  void warn(const std::string& why);

  Notify notify_;
  std::size_t room_;  // 0: unknown
  std::map<std::string, int> kept_;
  bool warned_ = false;
};

}  // namespace muster::supervisor
