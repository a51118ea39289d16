// DescriptorStore: descriptors that outlive this process: the service manager keeps them (sd_notify(3),
// FDSTORE=1), or an exec passes them on.
#pragma once

#include "api/shm/descriptor.hpp"

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace muster::supervisor {

// The names of LISTEN_FDNAMES for LISTEN_FDS descriptors from 3 on, if LISTEN_PID is this process; else
// empty. Pure: it takes the variables' values, null where one is not set.
std::vector<std::string> inherited_names(const char* listen_pid, const char* listen_fds,
                                         const char* listen_names, long pid);

// Owns    nothing: the owner of a descriptor forgets it here before closing it.
// Thread  the supervisor's loop.
// Bound   `room` descriptors, if the manager says how many it takes (FDSTORE in the environment); each
//         descriptor has one name, without colons.
// Fails   never. If the manager refuses a descriptor, which a kill then loses, one warning is logged.
class DescriptorStore {
 public:
  // A descriptor that came with this process's start, under the name that a predecessor or the manager gave
  // it.
  struct Inherited {
    std::string name;
    shm::Descriptor descriptor;
  };
  // Sends a line to the service manager, with descriptors. False if it cannot be sent.
  using Notify = std::function<bool(const std::string& text, std::span<const int> descriptors)>;
  DescriptorStore(Notify notify, std::size_t room) : notify_(std::move(notify)), room_(room) {}

  void keep(const std::string& name, const shm::Descriptor& descriptor);
  // Notes a descriptor that the manager has already.
  void know(const std::string& name, const shm::Descriptor& descriptor);
  void forget(const std::string& name);
  // Drops a predecessor's name that nobody needs any more.
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
