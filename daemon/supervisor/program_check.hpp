// ProgramCheck: asks another musterd, before it takes over, whether it could: does it start with these
// arguments, and does it read this state?
#pragma once

#include "api/shm/descriptor.hpp"
#include "daemon/control/loop.hpp"

#include "api/base/result.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

namespace muster::supervisor {

// Owns    a child `PROGRAM ARGUMENTS --check-state 3`, until it has ended. Destruction kills it.
// Thread  the supervisor's loop.
// Bound   kTime; kWordsMax bytes of what it says.
// Fails   start: kNotFound, kDenied, kNoResource. `done`: kVersion with the program's own words, kTimeout. It
// is
//         called once, from the loop, and may destroy this object.
class ProgramCheck {
 public:
  static constexpr Nanos kTime = std::chrono::seconds(5);
  static constexpr std::size_t kWordsMax = 2000;
  using Done = std::function<void(const Status&)>;

  static Result<std::unique_ptr<ProgramCheck>> start(control::Loop& loop, const std::string& program,
                                                     const std::vector<std::string>& arguments,
                                                     const shm::Descriptor& state, Done done);
  ~ProgramCheck();
  ProgramCheck(const ProgramCheck&) = delete;
  ProgramCheck& operator=(const ProgramCheck&) = delete;

 private:
  ProgramCheck(control::Loop& loop, std::string program, pid_t pid, shm::Descriptor pidfd,
               shm::Descriptor words, Done done);
  void read_words();
  void on_end();
  void finish(const Status& status);

  control::Loop& loop_;
  std::string program_;
  pid_t pid_;
  shm::Descriptor pidfd_;
  shm::Descriptor output_;  // its standard output and error
  std::string words_;
  Done done_;
  control::Loop::Watch output_watch_ = 0;
  control::Loop::Watch death_watch_ = 0;
  control::Loop::Watch timer_ = 0;
};

}  // namespace muster::supervisor
