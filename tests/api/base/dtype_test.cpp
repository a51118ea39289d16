#include "api/base/dtype.hpp"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(Dtype, HasItsBytes) {
  EXPECT_EQ(dtype_bytes(MUSTER_U8), 1u);
  EXPECT_EQ(dtype_bytes(MUSTER_I8), 1u);
  EXPECT_EQ(dtype_bytes(MUSTER_F8_E4M3), 1u);
  EXPECT_EQ(dtype_bytes(MUSTER_F8_E5M2), 1u);
  EXPECT_EQ(dtype_bytes(MUSTER_BF16), 2u);
  EXPECT_EQ(dtype_bytes(MUSTER_F16), 2u);
  EXPECT_EQ(dtype_bytes(MUSTER_F32), 4u);
  EXPECT_EQ(dtype_bytes(MUSTER_I32), 4u);
  EXPECT_EQ(dtype_bytes(MUSTER_F64), 8u);
  EXPECT_EQ(dtype_bytes(MUSTER_I64), 8u);
  EXPECT_EQ(dtype_bytes(0), 0u);
  EXPECT_EQ(dtype_bytes(MUSTER_F8_E5M2 + 1), 0u);
}

TEST(Dtype, HasTheNameOfItsConstant) {
  EXPECT_STREQ(dtype_name(MUSTER_BF16), "bf16");
  EXPECT_STREQ(dtype_name(MUSTER_I64), "i64");
  EXPECT_STREQ(dtype_name(MUSTER_I8), "i8");
  EXPECT_STREQ(dtype_name(MUSTER_F8_E4M3), "f8_e4m3");
  EXPECT_STREQ(dtype_name(MUSTER_F8_E5M2), "f8_e5m2");
  EXPECT_STREQ(dtype_name(0), "none");
  EXPECT_STREQ(dtype_name(99), "unknown dtype");
}

TEST(Dtype, IsAnIntegerOrAFloat) {
  for (const muster_dtype dtype : {MUSTER_I32, MUSTER_I64, MUSTER_U8, MUSTER_I8})
    EXPECT_TRUE(is_integer(dtype)) << dtype_name(dtype);
  for (const muster_dtype dtype :
       {MUSTER_F32, MUSTER_BF16, MUSTER_F16, MUSTER_F64, MUSTER_F8_E4M3, MUSTER_F8_E5M2})
    EXPECT_FALSE(is_integer(dtype)) << dtype_name(dtype);
}

}  // namespace
}  // namespace muster
