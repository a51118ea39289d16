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

// From now on SIGINT and SIGTERM end the program that is waited for, not this one.
void pass_signals_on();
// Whether one of them has come.
bool told_to_end();

// arguments[0] is searched in PATH. The program's standard error is this one's own.
Output output_of(const std::vector<std::string>& arguments, Nanos limit);

}  // namespace muster::bench
