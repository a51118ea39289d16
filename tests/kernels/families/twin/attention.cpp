#include "tests/kernels/families/twin/attention.hpp"

#include <cmath>
#include <limits>

namespace muster::kernels::twin {
namespace {

// One query of one head: where it and its keys lie, and its probabilities.
class Query {
 public:
  Query(const AttentionProblem& problem, std::int64_t b, std::int64_t h, std::int64_t s,
        const std::vector<double>& q, const std::vector<double>& k)
      : p_(problem), batch_(b), key_head_(h / (problem.heads / problem.key_heads)) {
    first_ = static_cast<std::size_t>(((b * p_.queries + s) * p_.heads + h) * p_.features);
    std::vector<double> scores;
    double largest = -std::numeric_limits<double>::infinity();
    for (std::int64_t l = 0; l < p_.keys; ++l) {
      if (p_.causal && p_.k_position + l > p_.q_position + s) break;
      double score = 0.0;
      for (std::size_t e = 0; e < features(); ++e) score += q[first_ + e] * k[key(scores.size()) + e];
      scores.push_back(score * p_.scale);
      largest = std::fmax(largest, scores.back());
    }
    double sum = 0.0;
    for (const double score : scores) sum += std::exp(score - largest);
    lse = scores.empty() ? -std::numeric_limits<double>::infinity() : largest + std::log(sum);
    for (const double score : scores) chances.push_back(std::exp(score - lse));
  }

  std::size_t features() const { return static_cast<std::size_t>(p_.features); }
  std::size_t first() const { return first_; }  // of q, out and their gradients
  std::size_t key(std::size_t l) const {        // of k, v and their gradients
    return static_cast<std::size_t>(
        ((batch_ * p_.keys + static_cast<std::int64_t>(l)) * p_.key_heads + key_head_) * p_.features);
  }

  std::vector<double> chances;  // of the keys it sees
  double lse;

 private:
  const AttentionProblem& p_;
  std::int64_t batch_;
  std::int64_t key_head_;
  std::size_t first_;
};

template<class F>
void each_query(const AttentionProblem& p, const std::vector<double>& q, const std::vector<double>& k,
                F&& f) {
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h)
      for (std::int64_t s = 0; s < p.queries; ++s) f(Query(p, b, h, s, q, k));
}

}  // namespace

AttentionForward attention(const AttentionProblem& p, const std::vector<double>& q,
                           const std::vector<double>& k, const std::vector<double>& v) {
  AttentionForward result{std::vector<double>(q.size(), 0.0), {}};
  each_query(p, q, k, [&](const Query& query) {
    for (std::size_t l = 0; l < query.chances.size(); ++l)
      for (std::size_t e = 0; e < query.features(); ++e)
        result.out[query.first() + e] += query.chances[l] * v[query.key(l) + e];
    result.lse.push_back(query.lse);
  });
  return result;
}

AttentionBackward attention_backward(const AttentionProblem& p, const std::vector<double>& dout,
                                     const std::vector<double>& q, const std::vector<double>& k,
                                     const std::vector<double>& v) {
  AttentionBackward g{std::vector<double>(q.size(), 0.0), std::vector<double>(k.size(), 0.0),
                      std::vector<double>(v.size(), 0.0)};
  each_query(p, q, k, [&](const Query& query) {
    const std::size_t n = query.chances.size();
    std::vector<double> dchance(n, 0.0);
    double mean = 0.0;
    for (std::size_t l = 0; l < n; ++l) {
      for (std::size_t e = 0; e < query.features(); ++e) {
        dchance[l] += dout[query.first() + e] * v[query.key(l) + e];
        g.dv[query.key(l) + e] += query.chances[l] * dout[query.first() + e];
      }
      mean += query.chances[l] * dchance[l];
    }
    for (std::size_t l = 0; l < n; ++l) {
      const double dscore = p.scale * query.chances[l] * (dchance[l] - mean);
      for (std::size_t e = 0; e < query.features(); ++e) {
        g.dq[query.first() + e] += dscore * k[query.key(l) + e];
        g.dk[query.key(l) + e] += dscore * q[query.first() + e];
      }
    }
  });
  return g;
}

}  // namespace muster::kernels::twin
