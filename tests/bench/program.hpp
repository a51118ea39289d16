// Starts a program and reads what it prints.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/result.hpp"

#include <string>
#include <vector>

namespace muster::bench {

// What a program has said until its end, and how that was. kNotFound: there is no such program; kTimeout: it
// ran past its time and was ended; kAborted: this one was told to end; kInternal: it ended badly.
struct Output {
  std::string text;
  Status status;
};

// From now on SIGINT and SIGTERM end the program that is waited for, not this one; and who has lost its
// parent among what that program has started belongs to this one.
void take_charge();
// Whether one of them has come.
bool told_to_end();

// arguments[0] is searched in PATH. The program's standard error is this one's own. If it ends badly, all
// that it has started ends with it.
Output output_of(const std::vector<std::string>& arguments, Nanos limit);

}  // namespace muster::bench
