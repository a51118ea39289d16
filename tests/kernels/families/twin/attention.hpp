// Softmax attention in double, one query at a time.
#pragma once

#include <cstdint>
#include <vector>

namespace muster::kernels::twin {

struct AttentionProblem {
  std::int64_t batch, queries, keys, heads, key_heads, features;
  double scale = 1.0;
  bool causal = false;
  std::int64_t q_position = 0;
  std::int64_t k_position = 0;
};
struct AttentionForward {
  std::vector<double> out, lse;  // [B,S,H,E] and [B,H,S]
};
struct AttentionBackward {
  std::vector<double> dq, dk, dv;
};

AttentionForward attention(const AttentionProblem& p, const std::vector<double>& q,
                           const std::vector<double>& k, const std::vector<double>& v);
AttentionBackward attention_backward(const AttentionProblem& p, const std::vector<double>& dout,
                                     const std::vector<double>& q, const std::vector<double>& k,
                                     const std::vector<double>& v);

}  // namespace muster::kernels::twin
