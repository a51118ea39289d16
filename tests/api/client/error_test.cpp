// The C API turns exceptions of libraries into status codes. The last error changes with failed calls alone.
#include "api/client/error.hpp"

#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace {

using muster::Code;
using muster::failure;
using muster::Status;
using muster::client::guarded;

muster_status_t fail(Code code, const char* text) {
  return guarded([&] { return failure(code, "{}", text); });
}

TEST(LastError, StaysThroughWhatSucceedsOrIsPending) {
  EXPECT_EQ(fail(Code::kStale, "why"), MUSTER_ERR_STALE);
  EXPECT_EQ(guarded([] { return Status(); }), MUSTER_OK);
  EXPECT_EQ(guarded([] { return Status(Code::kPending, ""); }), MUSTER_PENDING);
  EXPECT_STREQ(muster_last_error(), "why");
  EXPECT_EQ(guarded([] { return Status(Code::kBusy, ""); }), MUSTER_ERR_BUSY);
  EXPECT_STREQ(muster_last_error(), muster_status_sentence(MUSTER_ERR_BUSY)) << "no words of its own";
}

TEST(LastError, IsThisThreadsOwn) {
  fail(Code::kStale, "mine");
  std::thread([] { EXPECT_STREQ(muster_last_error(), ""); }).join();
  EXPECT_STREQ(muster_last_error(), "mine");
}

// Goal:   an exception for missing memory is reported as a limit; any other exception as a defect of Muster.
TEST(Guarded, TellsAWantOfMemoryFromADefect) {
  EXPECT_EQ(guarded([]() -> Status { throw std::bad_alloc(); }), MUSTER_ERR_NO_RESOURCE);
  EXPECT_NE(std::string(muster_last_error()).find("no memory left"), std::string::npos);
  EXPECT_EQ(guarded([]() -> Status { throw std::length_error("vector"); }), MUSTER_ERR_NO_RESOURCE);
  EXPECT_EQ(guarded([]() -> Status { throw std::out_of_range("map::at"); }), MUSTER_ERR_INTERNAL);
  EXPECT_STREQ(muster_last_error(), "map::at");
}

}  // namespace
