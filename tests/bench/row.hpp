// Row, Figure: the lines that ranks print to standard output, and that the report keeps.
#pragma once

#include <compare>
#include <cstddef>
#include <string>

namespace muster::bench {

// One measured cell.
struct Row {
  std::string operation;  // a name of Operation, kBesides or kAlone
  std::size_t bytes = 0;  // the full vector; 0 where there is none
  int ranks = 0;
  std::string path;  // by which way: direct, engine; for a peer its transport or setting
  std::string peer;  // whose: muster, openmpi, mpich, gloo
  double median_us = 0.0;
  double minimum_us = 0.0;
  int samples = 0;
};

// A measured value that is no time.
struct Figure {
  std::string name;
  int ranks = 0;
  std::string path;
  std::string peer;
  double value = 0.0;
  std::string unit;
};

// The common key of rows of several contenders.
struct Cell {
  std::string operation;
  std::size_t bytes = 0;
  int ranks = 0;

  friend auto operator<=>(const Cell&, const Cell&) = default;
};
inline Cell cell_of(const Row& row) {
  return {row.operation, row.bytes, row.ranks};
}

}  // namespace muster::bench
