#include "tests/bench/resident.hpp"

#include "tests/bench/descendants.hpp"

#include <cstdlib>
#include <fstream>
#include <string>

namespace muster::bench {
namespace {

double resident_kib(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("Pss:")) return std::strtod(line.c_str() + 4, nullptr);
  return 0.0;
}

}  // namespace

double resident_mib_below(int root) {
  double kib = 0.0;
  for (const int pid : descendants_of(root)) kib += resident_kib(pid);
  return kib / 1024.0;
}

}  // namespace muster::bench
