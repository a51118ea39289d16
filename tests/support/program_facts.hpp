// What a test asks of programs that it has run.
#pragma once

#include <algorithm>
#include <csignal>
#include <sstream>
#include <string>
#include <vector>

#include <sys/types.h>

namespace muster::test {

// The lines of what several processes have printed, in an order of their own.
inline std::vector<std::string> sorted_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

// A process that has ended exists until its parent has asked for its end.
inline bool exists(pid_t pid) {
  return kill(pid, 0) == 0;
}

}  // namespace muster::test
