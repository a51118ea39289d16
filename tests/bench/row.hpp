// Row: one measured cell, as ranks print it on a line of their standard output and as the report keeps it.
#pragma once

#include <cstddef>
#include <string>

namespace muster::bench {

struct Row {
  std::string operation;  // all_reduce, all_gather, reduce_scatter, barrier, kernel, submit
  std::size_t bytes = 0;  // the full vector
  int ranks = 0;
  std::string path;  // by which way: engine; for a peer its transport; memory for the floor
  std::string peer;  // whose: muster, openmpi, floor
  double median_us = 0.0;
  double minimum_us = 0.0;
};

}  // namespace muster::bench
