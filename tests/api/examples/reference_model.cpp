#include "tests/api/examples/reference_model.hpp"

#include <cmath>

namespace reference {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr double kTheta = 10000.0;

struct Matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<double> values;
  Matrix(std::size_t r, std::size_t c) : rows(r), columns(c), values(r * c, 0.0) {}
  Matrix(std::size_t r, std::size_t c, const std::vector<double>& v) : rows(r), columns(c), values(v) {}
  double& at(std::size_t r, std::size_t c) { return values[r * columns + c]; }
  double at(std::size_t r, std::size_t c) const { return values[r * columns + c]; }
};

void add(Matrix& sum, const Matrix& summand) {
  for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += summand.values[i];
}

// A layer y = x·wᵀ with what its backward pass needs.
struct Linear {
  const Matrix weight;
  std::vector<double>& gradient;
  Matrix input{0, 0};

  Matrix forward(const Matrix& x) {
    input = x;
    Matrix y(x.rows, weight.rows);
    for (std::size_t t = 0; t < x.rows; ++t)
      for (std::size_t n = 0; n < weight.rows; ++n)
        for (std::size_t k = 0; k < weight.columns; ++k) y.at(t, n) += x.at(t, k) * weight.at(n, k);
    return y;
  }
  Matrix backward(const Matrix& dy) {
    Matrix dx(dy.rows, weight.columns);
    for (std::size_t t = 0; t < dy.rows; ++t)
      for (std::size_t n = 0; n < weight.rows; ++n)
        for (std::size_t k = 0; k < weight.columns; ++k) {
          dx.at(t, k) += dy.at(t, n) * weight.at(n, k);
          gradient[n * weight.columns + k] += dy.at(t, n) * input.at(t, k);
        }
    return dx;
  }
};

struct Norm {
  const std::vector<double>& weight;
  std::vector<double>& gradient;
  Matrix input{0, 0};

  double inverse_rms(std::size_t t) const {
    double squares = 0.0;
    for (std::size_t i = 0; i < input.columns; ++i) squares += input.at(t, i) * input.at(t, i);
    return 1.0 / std::sqrt(squares / static_cast<double>(input.columns) + kEpsilon);
  }
  Matrix forward(const Matrix& x) {
    input = x;
    Matrix y(x.rows, x.columns);
    for (std::size_t t = 0; t < x.rows; ++t)
      for (std::size_t i = 0; i < x.columns; ++i) y.at(t, i) = x.at(t, i) * inverse_rms(t) * weight[i];
    return y;
  }
  // With r = (mean(x²) + e)^(-1/2): dy_i/dx_j = w_i·(r·[i = j] - x_i·x_j·r³/D).
  Matrix backward(const Matrix& dy) {
    Matrix dx(dy.rows, dy.columns);
    for (std::size_t t = 0; t < dy.rows; ++t) {
      const double r = inverse_rms(t);
      double dot = 0.0;
      for (std::size_t i = 0; i < dy.columns; ++i) dot += dy.at(t, i) * weight[i] * input.at(t, i);
      for (std::size_t j = 0; j < dy.columns; ++j) {
        gradient[j] += dy.at(t, j) * input.at(t, j) * r;
        dx.at(t, j) =
            dy.at(t, j) * weight[j] * r - dot * input.at(t, j) * r * r * r / static_cast<double>(dy.columns);
      }
    }
    return dx;
  }
};

// Turns feature pairs (i, i + E/2) of each head by the position's angle; sign -1 turns back.
void rotate(Matrix& x, std::size_t heads, double sign) {
  const std::size_t features = x.columns / heads;
  for (std::size_t t = 0; t < x.rows; ++t)
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t i = 0; i < features / 2; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(features);
        const double angle = sign * static_cast<double>(t) * std::pow(kTheta, exponent);
        double& a = x.at(t, h * features + i);
        double& b = x.at(t, h * features + i + features / 2);
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = turned;
      }
}

// Causal attention of one sequence.
struct Attention {
  std::size_t heads;
  Matrix q{0, 0}, k{0, 0}, v{0, 0};
  std::vector<Matrix> probabilities = {};

  double scale() const { return 1.0 / std::sqrt(static_cast<double>(q.columns / heads)); }
  Matrix forward() {
    const std::size_t features = q.columns / heads;
    Matrix out(q.rows, q.columns);
    probabilities.assign(heads, Matrix(q.rows, q.rows));
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t t = 0; t < q.rows; ++t) {
        double total = 0.0;
        for (std::size_t s = 0; s <= t; ++s) {
          double dot = 0.0;
          for (std::size_t e = h * features; e < (h + 1) * features; ++e) dot += q.at(t, e) * k.at(s, e);
          probabilities[h].at(t, s) = std::exp(dot * scale());
          total += probabilities[h].at(t, s);
        }
        for (std::size_t s = 0; s <= t; ++s) {
          probabilities[h].at(t, s) /= total;
          for (std::size_t e = h * features; e < (h + 1) * features; ++e)
            out.at(t, e) += probabilities[h].at(t, s) * v.at(s, e);
        }
      }
    return out;
  }
  void backward(const Matrix& dout, Matrix& dq, Matrix& dk, Matrix& dv) const {
    const std::size_t features = q.columns / heads;
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t t = 0; t < q.rows; ++t) {
        std::vector<double> dp(t + 1, 0.0);
        double mean = 0.0;
        for (std::size_t s = 0; s <= t; ++s) {
          for (std::size_t e = h * features; e < (h + 1) * features; ++e) {
            dp[s] += dout.at(t, e) * v.at(s, e);
            dv.at(s, e) += probabilities[h].at(t, s) * dout.at(t, e);
          }
          mean += probabilities[h].at(t, s) * dp[s];
        }
        for (std::size_t s = 0; s <= t; ++s) {
          const double dscore = probabilities[h].at(t, s) * (dp[s] - mean) * scale();
          for (std::size_t e = h * features; e < (h + 1) * features; ++e) {
            dq.at(t, e) += dscore * k.at(s, e);
            dk.at(s, e) += dscore * q.at(t, e);
          }
        }
      }
  }
};

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

// Looks parameters up by name and keeps their gradients beside them.
struct Store {
  const Sizes& sizes;
  const Parameters& parameters;
  Parameters& gradients;

  Linear linear(const std::string& name, std::size_t rows, std::size_t columns) {
    return {Matrix(rows, columns, parameters.at(name)), gradients[name]};
  }
  Norm norm(const std::string& name) { return {parameters.at(name), gradients[name]}; }
};

struct Block {
  Norm attention_norm, mlp_norm;
  Linear query, key, value, output, gate, up, down;
  Attention attention;
  Matrix gates{0, 0}, ups{0, 0};

  Block(Store& s, const std::string& name)
      : attention_norm(s.norm(name + "attention_norm")),
        mlp_norm(s.norm(name + "mlp_norm")),
        query(s.linear(name + "query", s.sizes.width, s.sizes.width)),
        key(s.linear(name + "key", s.sizes.width, s.sizes.width)),
        value(s.linear(name + "value", s.sizes.width, s.sizes.width)),
        output(s.linear(name + "output", s.sizes.width, s.sizes.width)),
        gate(s.linear(name + "gate", s.sizes.hidden, s.sizes.width)),
        up(s.linear(name + "up", s.sizes.hidden, s.sizes.width)),
        down(s.linear(name + "down", s.sizes.width, s.sizes.hidden)),
        attention{s.sizes.heads} {}

  Matrix forward(Matrix x) {
    const Matrix normed = attention_norm.forward(x);
    attention.q = query.forward(normed);
    attention.k = key.forward(normed);
    attention.v = value.forward(normed);
    rotate(attention.q, attention.heads, +1.0);
    rotate(attention.k, attention.heads, +1.0);
    add(x, output.forward(attention.forward()));

    const Matrix mlp_in = mlp_norm.forward(x);
    gates = gate.forward(mlp_in);
    ups = up.forward(mlp_in);
    Matrix activated(gates.rows, gates.columns);
    for (std::size_t i = 0; i < activated.values.size(); ++i)
      activated.values[i] = gates.values[i] * sigmoid(gates.values[i]) * ups.values[i];
    add(x, down.forward(activated));
    return x;
  }

  Matrix backward(Matrix dx) {
    const Matrix dactivated = down.backward(dx);
    Matrix dgates(gates.rows, gates.columns);
    Matrix dups(gates.rows, gates.columns);
    for (std::size_t i = 0; i < gates.values.size(); ++i) {
      const double g = gates.values[i];
      const double s = sigmoid(g);
      dups.values[i] = dactivated.values[i] * g * s;
      dgates.values[i] = dactivated.values[i] * ups.values[i] * (s + g * s * (1.0 - s));
    }
    Matrix dmlp_in = gate.backward(dgates);
    add(dmlp_in, up.backward(dups));
    add(dx, mlp_norm.backward(dmlp_in));

    Matrix dq(dx.rows, dx.columns), dk(dx.rows, dx.columns), dv(dx.rows, dx.columns);
    attention.backward(output.backward(dx), dq, dk, dv);
    rotate(dq, attention.heads, -1.0);
    rotate(dk, attention.heads, -1.0);
    Matrix dnormed = query.backward(dq);
    add(dnormed, key.backward(dk));
    add(dnormed, value.backward(dv));
    add(dx, attention_norm.backward(dnormed));
    return dx;
  }
};

// Adds one sequence's loss and gradients, each token with the given weight.
double sequence(const Sizes& sizes, Store& store, std::span<const int> ids, std::span<const int> targets,
                double weight, bool backward) {
  const std::vector<double>& table = store.parameters.at("embedding");
  Matrix x(sizes.context, sizes.width);
  for (std::size_t t = 0; t < sizes.context; ++t)
    for (std::size_t i = 0; i < sizes.width; ++i)
      x.at(t, i) = table[static_cast<std::size_t>(ids[t]) * sizes.width + i];
  std::vector<Block> blocks;
  for (std::size_t layer = 0; layer < sizes.layers; ++layer) {
    blocks.emplace_back(store, "block" + std::to_string(layer) + ".");
    x = blocks.back().forward(x);
  }
  Norm norm = store.norm("final_norm");
  Linear head = store.linear("head", sizes.vocabulary, sizes.width);
  Matrix logits = head.forward(norm.forward(x));

  double loss = 0.0;
  for (std::size_t t = 0; t < sizes.context; ++t) {
    double total = 0.0;
    for (std::size_t v = 0; v < sizes.vocabulary; ++v) total += std::exp(logits.at(t, v));
    const auto target = static_cast<std::size_t>(targets[t]);
    loss += weight * (std::log(total) - logits.at(t, target));
    for (std::size_t v = 0; v < sizes.vocabulary; ++v)
      logits.at(t, v) = weight * (std::exp(logits.at(t, v)) / total - (v == target ? 1.0 : 0.0));
  }
  if (!backward) return loss;

  Matrix dx = norm.backward(head.backward(logits));
  for (std::size_t layer = sizes.layers; layer-- > 0;) dx = blocks[layer].backward(dx);
  for (std::size_t t = 0; t < sizes.context; ++t)
    for (std::size_t i = 0; i < sizes.width; ++i)
      store.gradients["embedding"][static_cast<std::size_t>(ids[t]) * sizes.width + i] += dx.at(t, i);
  return loss;
}

Pass pass(const Sizes& sizes, const Parameters& parameters, std::span<const int> ids,
          std::span<const int> targets, bool backward) {
  Pass result;
  for (const auto& [name, values] : parameters) result.gradients[name].assign(values.size(), 0.0);
  Store store{sizes, parameters, result.gradients};
  const double weight = 1.0 / static_cast<double>(ids.size());
  for (std::size_t begin = 0; begin < ids.size(); begin += sizes.context)
    result.loss += sequence(sizes, store, ids.subspan(begin, sizes.context),
                            targets.subspan(begin, sizes.context), weight, backward);
  return result;
}

}  // namespace

Pass run(const Sizes& sizes, const Parameters& parameters, std::span<const int> ids,
         std::span<const int> targets) {
  return pass(sizes, parameters, ids, targets, true);
}

double loss_of(const Sizes& sizes, const Parameters& parameters, std::span<const int> ids,
               std::span<const int> targets) {
  return pass(sizes, parameters, ids, targets, false).loss;
}

}  // namespace reference
