// Replacement: another program in the place of this one, in the same process, with descriptors handed on as a
// service manager does it (sd_listen_fds(3)).
#pragma once

#include "api/base/result.hpp"

#include <map>
#include <string>
#include <vector>

namespace muster::supervisor {

// The signals by which a daemon is told to end or to give way. Held, they wait: from the last moment of one
// program to the first of the next none is lost, and none ends a program that does not listen yet.
void hold_signals();
void hear_signals();

// Returns only if it fails, with everything as it was: kNotFound, kDenied, kNoResource. `kept` are
// descriptors by name. One thread.
Status replace_program(const std::string& program, const std::vector<std::string>& arguments,
                       const std::map<std::string, int>& kept);

}  // namespace muster::supervisor
