#include "api/base/status.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <set>
#include <string>

namespace muster {
namespace {

// Every code of muster.h, by the header's own spelling.
struct Named {
  muster_status_t value;
  const char* name;
};
#define MUSTER_NAMED(code) \
  Named {                  \
    code, #code            \
  }
constexpr std::array kPublic{
    MUSTER_NAMED(MUSTER_OK),
    MUSTER_NAMED(MUSTER_PENDING),
    MUSTER_NAMED(MUSTER_ERR_BAD_ARGUMENT),
    MUSTER_NAMED(MUSTER_ERR_BUSY),
    MUSTER_NAMED(MUSTER_ERR_UNSUPPORTED),
    MUSTER_NAMED(MUSTER_ERR_NO_RESOURCE),
    MUSTER_NAMED(MUSTER_ERR_STALE),
    MUSTER_NAMED(MUSTER_ERR_DENIED),
    MUSTER_NAMED(MUSTER_ERR_DUPLICATE),
    MUSTER_NAMED(MUSTER_ERR_NOT_FOUND),
    MUSTER_NAMED(MUSTER_ERR_CONFIG),
    MUSTER_NAMED(MUSTER_ERR_STATE),
    MUSTER_NAMED(MUSTER_ERR_WAIT_TIMEOUT),
    MUSTER_NAMED(MUSTER_ERR_WAIT_INTERRUPTED),
    MUSTER_NAMED(MUSTER_ERR_MISMATCH),
    MUSTER_NAMED(MUSTER_ERR_TIMEOUT),
    MUSTER_NAMED(MUSTER_ERR_PEER_LOST),
    MUSTER_NAMED(MUSTER_ERR_ABORTED),
    MUSTER_NAMED(MUSTER_ERR_DEPENDENCY),
    MUSTER_NAMED(MUSTER_ERR_CORRUPT),
    MUSTER_NAMED(MUSTER_ERR_INTERRUPTED),
    MUSTER_NAMED(MUSTER_ERR_MINORITY),
    MUSTER_NAMED(MUSTER_ERR_PROTOCOL),
    MUSTER_NAMED(MUSTER_ERR_VERSION),
    MUSTER_NAMED(MUSTER_ERR_DAEMON_LOST),
    MUSTER_NAMED(MUSTER_ERR_JOB_ENDED),
    MUSTER_NAMED(MUSTER_ERR_DEVICE),
    MUSTER_NAMED(MUSTER_ERR_INTERNAL),
};

TEST(Status, NamesEveryPublicCodeAsTheHeaderSpellsIt) {
  for (const Named& row : kPublic) {
    EXPECT_TRUE(is_known(row.value)) << row.name;
    EXPECT_STREQ(code_name(static_cast<Code>(row.value)), row.name);
  }
}

// Goal: the table has no code that the header lacks, so a number outside kPublic is always unknown.
TEST(Status, KnowsNoNumberBesideThePublicCodes) {
  std::set<muster_status_t> known;
  for (muster_status_t value = -1000; value <= 1000; ++value)
    if (is_known(value)) known.insert(value);
  std::set<muster_status_t> expected;
  for (const Named& row : kPublic) expected.insert(row.value);
  EXPECT_EQ(known, expected);
  EXPECT_FALSE(is_known(std::numeric_limits<muster_status_t>::min()));
  EXPECT_FALSE(is_known(std::numeric_limits<muster_status_t>::max()));
}

TEST(Status, GivesEachCodeItsOwnSentence) {
  std::set<std::string> sentences;
  for (const Named& row : kPublic) {
    const std::string sentence = code_sentence(static_cast<Code>(row.value));
    EXPECT_FALSE(sentence.empty()) << row.name;
    EXPECT_TRUE(sentences.insert(sentence).second) << row.name << " shares: " << sentence;
  }
}

TEST(Status, SaysUnknownForACorruptWord) {
  const auto corrupt = static_cast<Code>(-7777);
  EXPECT_STREQ(code_name(corrupt), "MUSTER_ERR_UNKNOWN");
  EXPECT_STREQ(code_sentence(corrupt), "a number that is no status");
  EXPECT_EQ(Status(corrupt, "").text(), "MUSTER_ERR_UNKNOWN");
}

TEST(Status, IsOkOnlyByDefault) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().text(), "MUSTER_OK");
  EXPECT_FALSE(Status(Code::kPending, "").ok());
}

TEST(Status, CarriesTheFormattedSentence) {
  const Status status = failure(Code::kBadArgument, "rank {} is not in 0..{}", 9, 7);
  EXPECT_EQ(status.code(), Code::kBadArgument);
  EXPECT_EQ(status.message(), "rank 9 is not in 0..7");
  EXPECT_EQ(status.text(), "MUSTER_ERR_BAD_ARGUMENT: rank 9 is not in 0..7");
}

// Goal: text from a user never acts as a format string.
TEST(Status, KeepsBracesOfAReadyMessage) {
  EXPECT_EQ(Status(Code::kConfig, "{}{0}").message(), "{}{0}");
}

TEST(Status, ComparesByCode) {
  EXPECT_EQ(failure(Code::kBusy, "a"), failure(Code::kBusy, "b"));
  EXPECT_FALSE(failure(Code::kBusy, "a") == failure(Code::kStale, "a"));
}

}  // namespace
}  // namespace muster
