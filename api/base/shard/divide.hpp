// The division of gradients: by which number, and where: before their sum, in it, or after it.
//
// Reference: torch.distributed.fsdp, _get_gradient_divide_factors. With f32 and bf16 the reduction divides
// itself. f16 has little range, so one part is divided before the sum, and the rest after it.
#pragma once

#include <muster/muster.h>

#include <cstdint>

namespace muster::shard {

struct GradientDivision {
  // The redops of the reduce-scatter among the ranks that share the unit, and of the all-reduce among its
  // replicas. SUM, AVG, or PREMUL_SUM by `scale`.
  muster_redop scatter = MUSTER_SUM;
  muster_redop reduce = MUSTER_SUM;
  double scale = 0;  // 0 unless a redop is PREMUL_SUM
  double after = 1;  // the result is divided by it; 1: it is ready

  friend bool operator==(const GradientDivision&, const GradientDivision&) = default;
};

// dtype: that of the gradients. shards, replicas: numbers of ranks, 1 or more. divisor: the number by which
// the sum of all ranks' gradients is divided; 0 for shards x replicas. With one shard there is no
// reduce-scatter, and the all-reduce does its work.
GradientDivision gradient_division(muster_dtype dtype, std::int64_t shards, std::int64_t replicas,
                                   double divisor);

}  // namespace muster::shard
