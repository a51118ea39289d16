// Plots: the time of an operation over the size of its vector, as pictures. A panel for each number of ranks,
// a line for each path of Muster, for the best of each peer, and for the floor; both axes logarithmic.
#pragma once

#include "tests/bench/report.hpp"

#include <string>

namespace muster::bench {

// The picture as SVG; empty if the operation has no row with a size.
std::string plot_of(const Report& report, const std::string& operation);

// FOLDER/OPERATION.svg for each operation that has a picture. kNoResource.
Status write_plots(const Report& report, const std::string& folder);

}  // namespace muster::bench
