// load_file(): reads a configuration file, and checks that no other user could have written it.
#pragma once

#include "api/base/result.hpp"
#include "daemon/config/diagnostic.hpp"

#include <cstdint>
#include <string>

#include <sys/types.h>
#include <unistd.h>

namespace muster::config {

enum class Ownership : std::uint8_t {
  kTrusted,  // owned by root or by `caller`, and writable by no other user: for a daemon
  kAny,      // for a command that only checks a file
};

// kNotFound: no such file. kDenied: not readable, or not trusted. kConfig: a directory, a device, empty or
// too large. Never blocks on a pipe. It checks the open file, which cannot be exchanged afterwards.
Result<Source> load_file(const std::string& path, Ownership ownership, uid_t caller = ::geteuid());

}  // namespace muster::config
