// Starts a program and reads what it prints.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/result.hpp"

#include <string>
#include <vector>

namespace muster::bench {

// The output of a program until its end, and how it ended. kNotFound: there is no such program; kTimeout: it
// ran past its limit and was ended; kAborted: this program was told to end; kInternal: it ended badly.
struct Output {
  std::string text;
  Status status;
};

// From now on SIGINT and SIGTERM end the program that is waited for, not this one. This process becomes the
// parent of that program's orphaned descendants.
void take_charge();
// Whether SIGINT or SIGTERM has come.
bool told_to_end();

// Searches arguments[0] in PATH. The program shares this program's standard error. If it ends badly, all
// processes that it has started end with it.
Output output_of(const std::vector<std::string>& arguments, Nanos limit);

}  // namespace muster::bench
