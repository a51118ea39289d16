#include "kernels/attention/attention.hpp"

#include "tests/kernels/families/tensor_fixture.hpp"
#include "tests/kernels/families/twin/attention.hpp"
#include "tests/kernels/families/twin/finite_difference.hpp"

#include <muster/kernels.h>

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

const Kernel& forward() {
  return row_of(attention::rows(), MUSTER_KERNEL_ATTENTION_FORWARD);
}
const Kernel& backward() {
  return row_of(attention::rows(), MUSTER_KERNEL_ATTENTION_BACKWARD);
}

using Problem = twin::AttentionProblem;

// All operands of one problem. Every operand takes the layout but one, so that no two agree by accident.
struct Case {
  Case(const Problem& problem, muster_dtype dtype_, Layout layout, Random& random)
      : p(problem),
        dtype(dtype_),
        q_shape{p.batch, p.queries, p.heads, p.features},
        k_shape{p.batch, p.keys, p.key_heads, p.features},
        q(dtype, q_shape, layout, uniforms(q_shape, random)),
        key(dtype, k_shape, layout, uniforms(k_shape, random)),
        v(dtype, k_shape, Layout::kDense, uniforms(k_shape, random)),
        dout(dtype, q_shape, layout, uniforms(q_shape, random)),
        out(dtype, q_shape, layout),
        lse(MUSTER_F32, {p.batch, p.heads, p.queries}, layout),
        dq(dtype, q_shape, Layout::kPaddedRows),
        dkey(dtype, k_shape, layout),
        dv(dtype, k_shape, Layout::kTransposed) {}

  static Values uniforms(const Shape& s, Random& random) {
    return random.uniforms(static_cast<std::size_t>(s[0] * s[1] * s[2] * s[3]), -1.5, 1.5);
  }
  Args with_reals(Args args) const {
    args.ints = {p.causal ? 1 : 0, p.q_position, p.k_position};
    args.reals = {p.scale};
    return args;
  }
  Args forward_args() {
    return with_reals(args_of({q.view(), key.view(), v.view(), out.view(), lse.view()}));
  }
  Args backward_args() {
    return with_reals(args_of({dout.view(), q.view(), key.view(), v.view(), out.view(), lse.view(), dq.view(),
                               dkey.view(), dv.view()}));
  }
  twin::AttentionForward twin_forward() const {
    return twin::attention(p, q.values(), key.values(), v.values());
  }
  twin::AttentionBackward twin_backward() const {
    return twin::attention_backward(p, dout.values(), q.values(), key.values(), v.values());
  }

  Problem p;
  muster_dtype dtype;
  Shape q_shape, k_shape;
  OwnedTensor q, key, v, dout, out, lse, dq, dkey, dv;
};

std::string name(const Problem& p, muster_dtype dtype, Layout layout) {
  return fmt::format("B{} S{} L{} H{} G{} E{}{} at {}, {} {} dtype {}", p.batch, p.queries, p.keys, p.heads,
                     p.key_heads, p.features, p.causal ? " causal" : "", p.q_position, p.k_position,
                     layout_name(layout), dtype);
}

// Odd sizes around the tiles, grouped queries, empty sides, and positions that hide some or all keys.
const Problem kProblems[] = {{1, 1, 1, 1, 1, 1, 0.7},
                             {2, 3, 17, 4, 2, 5, 0.5},
                             {2, 17, 3, 2, 1, 16, 0.3, true},
                             {1, 129, 129, 3, 3, 8, 0.35, true},
                             {1, 50, 129, 2, 2, 33, 0.2, true, 79, 0},
                             {1, 97, 131, 2, 1, 16, 0.25, true, 10, 60},
                             {1, 9, 9, 1, 1, 4, 0.5, true, 3, 100},
                             {2, 0, 5, 2, 1, 4, 0.5},
                             {2, 5, 0, 2, 1, 4, 0.5, true},
                             {0, 5, 5, 2, 1, 4, 0.5},
                             {1, 4, 5, 0, 0, 4, 0.5},
                             {2, 4, 5, 0, 2, 4, 0.5}};
// Cut into several parts, forward and backward.
const Problem kLong{1, 300, 500, 4, 2, 20, 0.25, true, 200, 0};

// Relative to outputs that are means of values of order 1, whatever their own size.
Tolerance about(muster_dtype dtype, double absolute) {
  return {absolute, dtype == MUSTER_F32 ? 2e-6 : half_ulp(dtype)};
}

void expect_forward(Case& c) {
  const auto expected = c.twin_forward();
  run_in_any_order(forward(), c.forward_args(), {&c.out, &c.lse});
  expect_close(c.out.values(), expected.out, about(c.dtype, 2e-6));
  expect_close(c.lse.values(), expected.lse, {2e-6, 1e-6});
}

// The backward gets the forward's true output, rounded to the dtype: in bf16 that is off by half a unit,
// which moves the gradients by as much.
void expect_backward(Case& c) {
  const auto f = c.twin_forward();
  c.out.set(f.out);
  c.lse.set(f.lse);
  const auto expected = c.twin_backward();
  run_in_any_order(backward(), c.backward_args(), {&c.dq, &c.dkey, &c.dv});
  const double noise = c.dtype == MUSTER_F32 ? 2e-5 : 4e-2;
  expect_close(c.dq.values(), expected.dq, about(c.dtype, noise));
  expect_close(c.dkey.values(), expected.dk, about(c.dtype, noise));
  expect_close(c.dv.values(), expected.dv, about(c.dtype, 2e-5));
}

TEST(Attention, ForwardMatchesTheTwinForEveryShapeAndLayout) {
  Random random(701);
  for (const Problem& p : kProblems)
    for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16})
      for (const Layout layout : kLayouts) {
        SCOPED_TRACE(name(p, dtype, layout));
        Case c(p, dtype, layout, random);
        expect_forward(c);
      }
}

TEST(Attention, BackwardMatchesTheTwinForEveryShapeAndLayout) {
  Random random(702);
  for (const Problem& p : kProblems)
    for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16})
      for (const Layout layout : kLayouts) {
        SCOPED_TRACE(name(p, dtype, layout));
        Case c(p, dtype, layout, random);
        expect_backward(c);
      }
}

TEST(Attention, OfALongSequenceMatchesTheTwinInManyParts) {
  Random random(703);
  for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16}) {
    SCOPED_TRACE(name(kLong, dtype, Layout::kDense));
    Case c(kLong, dtype, Layout::kDense, random);
    EXPECT_GT(forward().parts(c.forward_args()), 4u);
    EXPECT_GT(backward().parts(c.backward_args()), 8u);
    expect_forward(c);
    expect_backward(c);
  }
}

TEST(Attention, GivesZerosAndNoMassToAQueryThatSeesNoKey) {
  Random random(704);
  Case c({1, 6, 5, 1, 1, 4, 0.5, true, 0, 3}, MUSTER_F32, Layout::kPaddedRows, random);
  run_in_any_order(forward(), c.forward_args(), {&c.out, &c.lse});
  const Values lse = c.lse.values();
  for (std::size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(lse[s], kNothing);
    for (std::size_t e = 0; e < 4; ++e) EXPECT_EQ(c.out.values()[s * 4 + e], 0.0);
  }
  EXPECT_GT(lse[3], kNothing);
  run_in_any_order(backward(), c.backward_args(), {&c.dq, &c.dkey, &c.dv});
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(c.dq.values()[i], 0.0);
  for (std::size_t i = 12; i < 20; ++i)
    EXPECT_EQ(c.dkey.values()[i], 0.0);  // the last two keys are seen by nobody
}

TEST(Attention, SurvivesScoresThatWouldOverflow) {
  Random random(705);
  Case c({1, 5, 200, 1, 1, 4, 300.0}, MUSTER_F32, Layout::kDense, random);
  const auto expected = c.twin_forward();
  run(forward(), c.forward_args());
  expect_close(c.lse.values(), expected.lse, {0.0, 1e-6});
  expect_close(c.out.values(), expected.out, {1e-3, 1e-3});  // scores of hundreds round by 1e-5 each
}

// A view of the positions [begin, end) of dim `dim`.
Tensor cut(Tensor t, std::size_t dim, std::int64_t begin, std::int64_t end) {
  t.data += begin * t.stride[dim] * 4;
  t.size[dim] = end - begin;
  return t;
}

// Goal:   ranks that hold pieces of the sequence reach the result of the whole: queries by their global
//         position, keys through the merge of partial results by their lse, gradients by adding what each
//         piece of keys gives.
TEST(Attention, OverPiecesOfQueriesAndKeysEqualsTheWhole) {
  Random random(706);
  for (const bool causal : {false, true}) {
    const Problem p{2, 60, 90, 4, 2, 16, 0.25, causal, 30, 0};
    Case c(p, MUSTER_F32, Layout::kPaddedRows, random);
    const auto whole = c.twin_forward();
    const auto gradients = c.twin_backward();
    const std::pair<std::int64_t, std::int64_t> key_pieces[] = {{0, 31}, {31, 31}, {31, 77}, {77, 90}};
    const std::pair<std::int64_t, std::int64_t> query_pieces[] = {{0, 1}, {1, 37}, {37, 60}};

    Values out(whole.out.size(), 0.0);
    Values mass(whole.lse.size(), 0.0);  // of e^lse
    Values dq(gradients.dq.size(), 0.0);
    for (const auto& [k_begin, k_end] : key_pieces) {
      for (const auto& [q_begin, q_end] : query_pieces) {
        Args args = c.forward_args();
        for (const std::size_t operand : {0, 3})
          args.tensors[operand] = cut(args.tensors[operand], 1, q_begin, q_end);
        for (const std::size_t operand : {1, 2})
          args.tensors[operand] = cut(args.tensors[operand], 1, k_begin, k_end);
        args.tensors[4] = cut(args.tensors[4], 2, q_begin, q_end);
        args.ints[1] += q_begin;
        args.ints[2] += k_begin;
        run(forward(), args);
      }
      const Values piece_out = c.out.values();
      const Values piece_lse = c.lse.values();
      for (std::size_t i = 0; i < piece_out.size(); ++i) {
        const std::size_t b = i / (60 * 4 * 16);
        const std::size_t s = i / (4 * 16) % 60;
        const std::size_t h = i / 16 % 4;
        out[i] += std::exp(piece_lse[(b * 4 + h) * 60 + s] - whole.lse[(b * 4 + h) * 60 + s]) * piece_out[i];
      }
      for (std::size_t i = 0; i < mass.size(); ++i) mass[i] += std::exp(piece_lse[i]);
    }
    expect_close(out, whole.out, {4e-6, 2e-6});
    for (double& m : mass) m = std::log(m);
    expect_close(mass, whole.lse, {2e-6, 1e-6});

    c.out.set(whole.out);
    c.lse.set(whole.lse);
    for (const auto& [k_begin, k_end] : key_pieces) {
      Args args = c.backward_args();
      for (const std::size_t operand : {2, 3, 7, 8})
        args.tensors[operand] = cut(args.tensors[operand], 1, k_begin, k_end);
      args.ints[2] += k_begin;
      run(backward(), args);
      const Values piece = c.dq.values();
      for (std::size_t i = 0; i < dq.size(); ++i) dq[i] += piece[i];
    }
    expect_close(dq, gradients.dq, {4e-5, 2e-6});
    expect_close(c.dkey.values(), gradients.dk, {4e-5, 2e-6});
    expect_close(c.dv.values(), gradients.dv, {4e-5, 2e-6});
  }
}

TEST(AttentionTwin, BackwardIsTheSlopeOfForward) {
  Random random(707);
  const Problem p{1, 4, 5, 4, 2, 3, 0.6, true, 1, 0};
  const Values q = random.uniforms(4 * 4 * 3);
  const Values k = random.uniforms(5 * 2 * 3);
  const Values v = random.uniforms(5 * 2 * 3);
  const Values dout = random.uniforms(4 * 4 * 3);
  const auto g = twin::attention_backward(p, dout, q, k, v);
  const auto loss = [&](const Values& a, const Values& b, const Values& c) {
    return twin::dot(twin::attention(p, a, b, c).out, dout);
  };
  expect_close(g.dq, twin::finite_difference([&](const Values& x) { return loss(x, k, v); }, q),
               {1e-9, 1e-9});
  expect_close(g.dk, twin::finite_difference([&](const Values& x) { return loss(q, x, v); }, k),
               {1e-9, 1e-9});
  expect_close(g.dv, twin::finite_difference([&](const Values& x) { return loss(q, k, x); }, v),
               {1e-9, 1e-9});
}

TEST(Attention, RefusesOperandsThatDoNotFitAndSaysWhich) {
  Random random(708);
  Case c({2, 3, 5, 4, 2, 6, 0.5}, MUSTER_F32, Layout::kDense, random);
  OwnedTensor three_heads(MUSTER_F32, {2, 5, 3, 6});
  OwnedTensor narrow(MUSTER_F32, {2, 5, 2, 4});
  OwnedTensor half(MUSTER_BF16, {2, 3, 4, 6});
  const auto refused = [](const Kernel& kernel, Args args, std::size_t operand, const Tensor& t,
                          const char* needle) {
    args.tensors[operand] = t;
    expect_refused(kernel, args, needle);
  };
  Args args = c.forward_args();
  refused(forward(), args, 1, narrow.view(), "key is [2, 5, 2, 4], but q is [2, 3, 4, 6]");
  refused(forward(), args, 2, three_heads.view(), "v is [2, 5, 3, 6], but key is [2, 5, 2, 6]");
  refused(forward(), args, 3, half.view(), "out is bf16, but q is f32");
  refused(forward(), args, 4, c.q.view(), "lse is [2, 3, 4, 6] and has 4 dims");
  args.tensors[1] = args.tensors[2] = three_heads.view();
  expect_refused(forward(), args, "the 4 heads of q must be a multiple of the 3 heads of key");
  args = c.forward_args();
  for (const std::int64_t features : {std::int64_t{0}, std::int64_t{4097}}) {
    for (Tensor& t : args.tensors) t.size = {1, 1, 1, features};
    expect_refused(forward(), args, "its fourth size must lie in 1..4096");
  }
  args = c.forward_args();
  args.ints[0] = 2;
  expect_refused(forward(), args, "causal is 2");
  args.ints = {1, -1, 0};
  expect_refused(forward(), args, "q_position is -1");
  args.ints = {1, 0, -7};
  expect_refused(forward(), args, "k_position is -7");
  args = c.forward_args();
  args.reals[0] = std::numeric_limits<double>::quiet_NaN();
  expect_refused(forward(), args, "scale is nan");
  refused(backward(), c.backward_args(), 6, c.key.view(), "dq is [2, 5, 2, 6], but q is [2, 3, 4, 6]");
  refused(backward(), c.backward_args(), 7, narrow.view(), "dkey is [2, 5, 2, 4], but key is [2, 5, 2, 6]");
}

}  // namespace
}  // namespace muster::kernels::test
