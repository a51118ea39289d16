#include "api/client/check/kernel_operands.hpp"

#include "kernels/table.hpp"

#include <gtest/gtest.h>

namespace muster::client {
namespace {

// Goal:   the client and the engine know the same of each kernel.
TEST(KernelOperands, AreThoseOfTheTable) {
  for (const kernels::Kernel& kernel : kernels::all()) {
    const KernelOperands* const known = operands_of(kernel.op);
    ASSERT_NE(known, nullptr) << kernel.name;
    EXPECT_STREQ(known->name, kernel.name);
    std::uint32_t written = 0;
    for (std::size_t i = 0; i < kernel.operands.size(); ++i)
      if (kernel.operands[i].intent != kernels::Operand::kRead) written |= 1U << i;
    EXPECT_EQ(known->written, written) << kernel.name;
  }
}

TEST(KernelOperands, OfAKernelThatDoesNotExistAreNone) {
  EXPECT_EQ(operands_of(0), nullptr);
  EXPECT_EQ(operands_of(12345), nullptr);
}

}  // namespace
}  // namespace muster::client
