// The elementwise kernels as plain loops in double, to compare the fast ones with.
#pragma once

#include <array>
#include <vector>

namespace muster::kernels::twin {

std::vector<double> axpby(double a, const std::vector<double>& x, double b, const std::vector<double>& y);
double sum(const std::vector<double>& x);
double sum_squares(const std::vector<double>& x);
double count_zeros(const std::vector<double>& x);
// {coefficient, norm}
std::array<double, 2> clip_coefficient(double square_sum, double max_norm);

}  // namespace muster::kernels::twin
