// Starts a program and reads what it prints.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/result.hpp"

#include <string>
#include <vector>

namespace muster::bench {

// Standard output of the program, once it has ended well; standard error is this program's own. arguments[0]
// is searched in PATH. kNotFound: there is no such program; kTimeout: it ran past `limit` and was ended;
// kInternal: it ended badly.
Result<std::string> output_of(const std::vector<std::string>& arguments, Nanos limit);

}  // namespace muster::bench
