// Questions of a test about programs that it has run.
#pragma once

#include <algorithm>
#include <csignal>
#include <sstream>
#include <string>
#include <vector>

#include <sys/types.h>

namespace muster::test {

// The printed lines of several processes, sorted, because their order varies.
inline std::vector<std::string> sorted_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

// An ended process exists until its parent has waited for it.
inline bool exists(pid_t pid) {
  return kill(pid, 0) == 0;
}

}  // namespace muster::test
