#include "kernels/onednn/product.hpp"

#include "tests/kernels/families/tensor_fixture.hpp"
#include "tests/kernels/families/twin/linear.hpp"

#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

using onednn::Bf16Path;
using onednn::Matrix;
using onednn::multiply;
using onednn::Product;

constexpr std::initializer_list<Bf16Path> kPaths{Bf16Path::kNative, Bf16Path::kConvert};

struct Sizes {
  std::int64_t m, n, k;
};

// Goal:   a machine without bf16 dot products computes what one with them does, within one rounding.
// Method: both paths on both dtypes of the result, all layouts of both inputs, against the twin. 2500 terms
//         are packed in several blocks.
TEST(Product, BothBf16PathsMatchTheTwin) {
  Random random(71);
  for (const Sizes& s :
       {Sizes{1, 1, 1}, Sizes{3, 17, 5}, Sizes{33, 65, 129}, Sizes{5, 7, 2500}, Sizes{2, 3, 0}}) {
    const auto terms = static_cast<std::size_t>(s.k);
    const twin::LinearSizes as_linear{static_cast<std::size_t>(s.m), static_cast<std::size_t>(s.n), terms};
    for (const Layout a_layout : kLayouts) {
      for (const Layout b_layout : kLayouts) {
        for (const muster_dtype c_dtype : {MUSTER_F32, MUSTER_BF16}) {
          for (const bool accumulate : {false, true}) {
            OwnedTensor a(MUSTER_BF16, {s.m, s.k}, a_layout, random.uniforms(as_linear.tokens * terms));
            OwnedTensor w(MUSTER_BF16, {s.n, s.k}, b_layout, random.uniforms(as_linear.out * terms));
            const Values before = random.uniforms(as_linear.tokens * as_linear.out);
            Values expected = twin::linear_forward(as_linear, a.values(), w.values(), {});
            if (accumulate)
              for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += rounded(c_dtype, before)[i];
            for (const Bf16Path path : kPaths) {
              SCOPED_TRACE(testing::Message()
                           << s.m << " " << s.n << " " << s.k << " " << layout_name(a_layout) << " "
                           << layout_name(b_layout) << " c " << c_dtype << " accumulate " << accumulate
                           << " path " << static_cast<int>(path));
              OwnedTensor c(c_dtype, {s.m, s.n}, Layout::kPaddedRows, before);
              Product p;
              p.a = Matrix::of(a.view());
              p.b = Matrix::of(w.view()).transposed();
              p.c = Matrix::of(c.view());
              p.accumulate = accumulate;
              multiply(p, path);
              expect_close(c.values(), expected,
                           {0x1p-24 * (4.0 + 2.0 * static_cast<double>(s.k)), 1.001 * half_ulp(c_dtype)});
              EXPECT_TRUE(c.padding_intact());
            }
          }
        }
      }
    }
  }
}

// Goal: a thread that has met more shapes than it remembers still computes each one right.
TEST(Product, SurvivesMoreShapesThanAThreadRemembers) {
  OwnedTensor a(MUSTER_BF16, {1, 200}, Layout::kDense, Values(200, 1.0));
  OwnedTensor b(MUSTER_BF16, {200, 1}, Layout::kDense, Values(200, 2.0));
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t terms = 1; terms <= 150; ++terms) {
      OwnedTensor c(MUSTER_F32, {1, 1});
      Product p;
      p.a = Matrix::of(a.view()).block({0, 1}, {0, terms});
      p.b = Matrix::of(b.view()).block({0, terms}, {0, 1});
      p.c = Matrix::of(c.view());
      multiply(p, Bf16Path::kNative);
      ASSERT_EQ(c.values(), Values{2.0 * static_cast<double>(terms)});
    }
  }
}

std::ptrdiff_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator{});
}

// Goal:   W workers that multiply are W threads: the library starts none of its own.
// Method: a fresh thread, so that no earlier call has set anything up, multiplies what would be worth a team.
TEST(Product, StaysOnTheCallingThread) {
  Random random(72);
  for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16}) {
    OwnedTensor a(dtype, {512, 256}, Layout::kDense, random.uniforms(512 * 256));
    OwnedTensor b(dtype, {256, 512}, Layout::kDense, random.uniforms(256 * 512));
    OwnedTensor c(dtype, {512, 512});
    Product p;
    p.a = Matrix::of(a.view());
    p.b = Matrix::of(b.view());
    p.c = Matrix::of(c.view());
    std::ptrdiff_t before = 0;
    std::ptrdiff_t after = 0;
    std::thread worker([&] {
      before = threads_of_this_process();
      multiply(p, onednn::bf16_path_of_this_machine());
      after = threads_of_this_process();
    });
    worker.join();
    EXPECT_EQ(after, before);
  }
}

}  // namespace
}  // namespace muster::kernels::test
