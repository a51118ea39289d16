// Replacement: replaces this program by another in the same process. Descriptors are passed on as a service
// manager passes them (sd_listen_fds(3)).
#pragma once

#include "api/base/result.hpp"
#include "api/shm/descriptor.hpp"
#include "daemon/supervisor/takeover/trusted_program.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace muster::supervisor {

// Blocks the signals that tell a daemon to end or to give way, in this thread and the threads it starts. So
// they wait until they are read, and none kills a program that is not ready for them.
void hold_signals();

// Reads the blocked signals, one by one. They stay in the kernel until then, so a signal that comes while one
// program replaces another is read by the new one.
//
// Owns    a descriptor.
// Thread  one that blocks them.
// Bound   -
// Fails   open: kNoResource.
class SignalQueue {
 public:
  static Result<SignalQueue> open();
  // Readable while there is a signal.
  int descriptor() const { return descriptor_.get(); }
  // The next signal's number; 0: there is none.
  int take() const;

 private:
  explicit SignalQueue(shm::Descriptor descriptor) : descriptor_(std::move(descriptor)) {}
  shm::Descriptor descriptor_;
};

// Returns only if it fails, with nothing changed: kDenied, kNoResource. `kept`: descriptors by
// name. Other threads of the process end with it.
Status replace_program(const TrustedProgram& program, const std::vector<std::string>& arguments,
                       const std::map<std::string, int>& kept);

}  // namespace muster::supervisor
