// `muster plan halo`: which rank needs what of whom where a field is cut. It needs no daemon.
#pragma once

#include "daemon/cli/outcome.hpp"

#include <cstdint>
#include <string>

namespace muster::cli {

// Numbers by dim are "3x5"; one alone stands for all dims.
struct HaloQuestion {
  std::string shape;  // "241x480", the items of each dim
  std::string cut;    // "4x2", the ranks along each dim
  std::string kernel = "3";
  std::string stride = "1";
  std::string dilation = "1";
  std::string pad = "0";       // on both sides
  std::string pads = "zeros";  // "circular", "reflect", "replicate"
  std::string dtype = "f32";   // of the elements
  std::int64_t rank = -1;      // -1: all
  bool transposed = false;
  bool by_dims = false;
};

int run_plan_halo(const HaloQuestion& question, Output output);

}  // namespace muster::cli
