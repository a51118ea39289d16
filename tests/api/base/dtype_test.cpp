#include "api/base/dtype.hpp"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(Dtype, HasItsBytes) {
  EXPECT_EQ(dtype_bytes(MUSTER_U8), 1u);
  EXPECT_EQ(dtype_bytes(MUSTER_BF16), 2u);
  EXPECT_EQ(dtype_bytes(MUSTER_F16), 2u);
  EXPECT_EQ(dtype_bytes(MUSTER_F32), 4u);
  EXPECT_EQ(dtype_bytes(MUSTER_I32), 4u);
  EXPECT_EQ(dtype_bytes(MUSTER_F64), 8u);
  EXPECT_EQ(dtype_bytes(MUSTER_I64), 8u);
  EXPECT_EQ(dtype_bytes(0), 0u);
  EXPECT_EQ(dtype_bytes(8), 0u);
}

TEST(Dtype, HasTheNameOfItsConstant) {
  EXPECT_STREQ(dtype_name(MUSTER_BF16), "bf16");
  EXPECT_STREQ(dtype_name(MUSTER_I64), "i64");
  EXPECT_STREQ(dtype_name(0), "none");
  EXPECT_STREQ(dtype_name(99), "unknown dtype");
}

}  // namespace
}  // namespace muster
