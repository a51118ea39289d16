// Dropout in double, element by element (Srivastava et al. 2014, scaled at training time).
#pragma once

#include <cstdint>
#include <vector>

namespace muster::kernels::twin {

// The word of one element, as kernels.h defines it.
std::uint32_t dropout_word(std::uint64_t seed, std::uint64_t index);

// Forward of x, and backward of dy. Element i of x has the index offset + i.
std::vector<double> dropout(const std::vector<double>& x, double p, std::uint64_t seed, std::uint64_t offset);

}  // namespace muster::kernels::twin
