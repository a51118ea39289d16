// A call of the C API that must succeed; a failure shows its text.
#pragma once

#include <gtest/gtest.h>
#include <muster/muster.h>

namespace muster::test {

inline void ok(muster_status_t status) {
  ASSERT_EQ(status, MUSTER_OK) << muster_last_error();
}

}  // namespace muster::test
