// ProgramCheck: asks another musterd before it takes over: does it start with these arguments, and can it
// read this state?
#pragma once

#include "api/shm/descriptor.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/supervisor/takeover/trusted_program.hpp"

#include "api/base/result.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace muster::supervisor {

// The line that only `musterd --check-state 3 --check-nonce NONCE` prints; many programs exit with 0.
// `reader`: the state version that the program understands. `state`: the version of the state it was shown.
// `protocol`: the version of messages that it speaks.
std::string check_answer(const std::string& nonce, std::uint32_t reader, std::uint32_t state,
                         std::uint32_t protocol);
// Whether one line of `words` is that answer, for any reader.
bool holds_check_answer(std::string_view words, const std::string& nonce, std::uint32_t state,
                        std::uint32_t protocol);

// Owns    a child `PROGRAM ARGUMENTS --check-state 3 --check-nonce NONCE --check-directory PATH`, until it
//         has ended. Destruction kills it.
// Thread  the supervisor's loop.
// Bound   kTime; kWordsMax bytes of its output.
// Fails   start: kNoResource. `done`: kTimeout; kVersion with the program's output, also if it exits with 0
//         and no check_answer(). The loop calls `done` once; it may destroy this object.
class ProgramCheck {
 public:
  static constexpr Nanos kTime = std::chrono::seconds(5);
  static constexpr std::size_t kWordsMax = 2000;
  using Done = std::function<void(const Status&)>;

  struct Question {
    std::vector<std::string> arguments;  // of its start, its name first
    std::uint32_t state_version = 0;     // of the state
    std::string nonce;                   // drawn for this question
    std::uint32_t protocol = 0;          // version that engines speak
    std::string directory;               // the runtime directory that it inherits
  };
  static Result<std::unique_ptr<ProgramCheck>> start(control::Loop& loop, const TrustedProgram& program,
                                                     const Question& question, const shm::Descriptor& state,
                                                     Done done);
  ~ProgramCheck();
  ProgramCheck(const ProgramCheck&) = delete;
  ProgramCheck& operator=(const ProgramCheck&) = delete;

 private:
  ProgramCheck(control::Loop& loop, std::string program, Question question, pid_t pid, shm::Descriptor pidfd,
               shm::Descriptor words, Done done);
  void read_words();
  void on_end();
  void finish(const Status& status);

  control::Loop& loop_;
  std::string program_;
  Question question_;
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
