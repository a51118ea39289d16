#include "api/base/shard/divide.hpp"

#include <cmath>

namespace muster::shard {
namespace {

// The largest power of two that divides `divisor` and stays below what is left of it.
double before_the_sum(double divisor) {
  double part = 1;
  while (std::fmod(divisor, part) == 0 && divisor / part > part) part *= 2;
  return part;
}

}  // namespace

GradientDivision gradient_division(muster_dtype dtype, std::int64_t shards, std::int64_t replicas,
                                   double divisor) {
  const auto ranks = static_cast<double>(shards * replicas);
  const double by = divisor == 0 ? ranks : divisor;
  GradientDivision division;
  if (by == 1) return division;
  // The operation that comes first.
  muster_redop& first = shards > 1 ? division.scatter : division.reduce;
  if (dtype != MUSTER_F32 && dtype != MUSTER_BF16 && dtype != MUSTER_F64) {
    const double before = before_the_sum(by);
    if (ranks > 1 && before > 1) {
      first = MUSTER_PREMUL_SUM;
      division.scale = 1 / before;
      division.after = by / before;
    } else {
      division.after = by;
    }
  } else if (ranks == 1) {
    division.after = by;
  } else if (by == ranks) {
    if (shards > 1) division.scatter = MUSTER_AVG;
    if (replicas > 1) division.reduce = MUSTER_AVG;
  } else if (by == static_cast<double>(shards)) {
    division.scatter = MUSTER_AVG;
  } else {
    first = MUSTER_PREMUL_SUM;
    division.scale = 1 / by;
  }
  return division;
}

}  // namespace muster::shard
