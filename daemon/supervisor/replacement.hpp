// Replacement: another program in the place of this one, in the same process, with descriptors handed on as a
// service manager does it (sd_listen_fds(3)).
#pragma once

#include "api/base/result.hpp"
#include "api/shm/descriptor.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace muster::supervisor {

// Holds the signals by which a daemon is told to end or to give way, in this thread and those that it starts:
// they wait until they are read, and none ends a program that does not listen yet.
void hold_signals();

// The signals that are held, one by one. They lie in the kernel until they are read, so what comes while one
// program replaces another is read by the next.
//
// Owns    a descriptor.
// Thread  one that holds them.
// Bound   -
// Fails   open: kNoResource.
class SignalQueue {
 public:
  static Result<SignalQueue> open();
  // Readable while there is a signal.
  int descriptor() const { return descriptor_.get(); }
  // The next one's number; 0: there is none.
  int take() const;

 private:
  explicit SignalQueue(shm::Descriptor descriptor) : descriptor_(std::move(descriptor)) {}
  shm::Descriptor descriptor_;
};

// Returns only if it fails, with everything as it was: kNotFound, kDenied, kNoResource. `kept` are
// descriptors by name. One thread.
Status replace_program(const std::string& program, const std::vector<std::string>& arguments,
                       const std::map<std::string, int>& kept);

}  // namespace muster::supervisor
