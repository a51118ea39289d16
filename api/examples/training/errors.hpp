// Errors that end a program that trains, other than a failure of the runtime.
#pragma once

#include <stdexcept>
#include <string>

namespace training {

// A mistake of the user: the program prints what() and ends with kExitUsage.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The launcher's environment makes no sense. Each rank has its own environment, so each reports its own.
class LaunchError : public UsageError {
 public:
  using UsageError::UsageError;
};

inline constexpr int kExitUsage = 2;    // wrong option, input, mesh or environment: nothing ran
inline constexpr int kExitRuntime = 3;  // the runtime reported a failure, such as a lost peer

}  // namespace training
