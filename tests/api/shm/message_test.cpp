#include "api/shm/message.hpp"

#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::shm {
namespace {

using testing::HasSubstr;

std::vector<std::byte> raw(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

template<class Change>
std::vector<std::byte> alloc_with(Change change) {
  auto message = make_message<BufferAlloc>(MessageKind::kBufferAlloc, 5);
  message.bytes = 4096;
  change(message);
  return raw(bytes_of(message));
}
Code code_of(std::span<const std::byte> bytes) {
  const auto result = checked<BufferAlloc>(bytes, MessageKind::kBufferAlloc);
  return result ? Code::kOk : result.error().code();
}

TEST(Message, ComesOutAsItWentIn) {
  const auto bytes = alloc_with([](BufferAlloc&) {});
  const auto message = checked<BufferAlloc>(bytes, MessageKind::kBufferAlloc);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->bytes, 4096u);
  EXPECT_EQ(message->header.serial, 5u);
}

TEST(Message, IsRefusedIfAnyPartOfItsHeaderIsWrong) {
  EXPECT_EQ(code_of(alloc_with([](BufferAlloc& m) { m.header.magic ^= 1; })), Code::kProtocol);
  EXPECT_EQ(code_of(alloc_with([](BufferAlloc& m) { ++m.header.version; })), Code::kVersion);
  EXPECT_EQ(code_of(alloc_with([](BufferAlloc& m) { m.header.kind = MessageKind::kHello; })),
            Code::kProtocol);
  EXPECT_EQ(code_of(alloc_with([](BufferAlloc& m) { m.header.kind = static_cast<MessageKind>(65535); })),
            Code::kProtocol);
  EXPECT_EQ(code_of(alloc_with([](BufferAlloc& m) { ++m.header.bytes; })), Code::kProtocol);
  EXPECT_EQ(code_of(alloc_with([](BufferAlloc& m) { m.header.bytes = 0xffffffff; })), Code::kProtocol);
}

// Goal:   a reason of any text becomes one that the engine takes.
TEST(Message, HasAsMuchOfAReasonAsFits) {
  const auto reason = [](const std::string& text) { return std::string(abort_of(7, text).reason); };
  EXPECT_EQ(reason(""), "");
  EXPECT_EQ(reason("unit \"a\" has no forward"), "unit \"a\" has no forward");
  EXPECT_EQ(reason("two\nlines\x1b"), "two lines?");
  const std::string full(kReasonBytes - 1, 'x');
  EXPECT_EQ(reason(full), full);
  EXPECT_EQ(reason(full + "y"), full);
  EXPECT_EQ(reason(full.substr(1) + "\u00e9"), full.substr(1)) << "no half of a character";
}

TEST(Message, IsRefusedAtEveryWrongLength) {
  const auto bytes = alloc_with([](BufferAlloc&) {});
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_EQ(code_of(std::span(bytes).first(n)), Code::kProtocol) << n;
  // Also when the header agrees with the wrong length.
  EXPECT_EQ(code_of(raw(bytes_of(make_message<Plain>(MessageKind::kBufferAlloc, 1)))), Code::kProtocol);
  auto longer = alloc_with([](BufferAlloc& m) { m.header.bytes += 8; });
  longer.resize(longer.size() + 8);
  EXPECT_EQ(code_of(longer), Code::kProtocol);
}

TEST(Message, MayHaveATailWhereThatIsSaid) {
  auto message = make_message<GroupAnswer>(MessageKind::kGroupAnswer, 1, 3 * sizeof(std::int32_t));
  message.ranks = 3;
  std::vector<std::byte> bytes = raw(bytes_of(message));
  for (const std::int32_t rank : {4, 5, 6}) {
    const auto part = raw(bytes_of(rank));
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  EXPECT_EQ(checked<GroupAnswer>(bytes, MessageKind::kGroupAnswer).error().code(), Code::kProtocol);
  ASSERT_TRUE(checked<GroupAnswer>(bytes, MessageKind::kGroupAnswer, Tail::kAllowed));
  const auto tail = tail_of<GroupAnswer>(bytes);
  ASSERT_EQ(tail.size(), 12u);
  EXPECT_EQ(tail_entry<std::int32_t>(tail, 2), 6);
  EXPECT_DEATH((void)tail_entry<std::int32_t>(tail, 3), "assertion failed");
}

TEST(Message, TextsEndInsideTheirField) {
  auto hello = make_message<Hello>(MessageKind::kHello, 1);
  ASSERT_TRUE(set_text(hello.job, "train", "job").ok());
  EXPECT_EQ(checked_text(hello.job, "job").value(), "train");
  EXPECT_EQ(checked_text(hello.mesh, "mesh").value(), "");
  std::memset(hello.job, 'x', sizeof hello.job);
  const auto endless = checked_text(hello.job, "job");
  EXPECT_EQ(endless.error().code(), Code::kProtocol);
  EXPECT_THAT(endless.error().message(), HasSubstr("\"job\""));

  EXPECT_TRUE(set_text(hello.job, std::string(kNameBytes - 1, 'a'), "job").ok());
  EXPECT_EQ(checked_text(hello.job, "job").value().size(), kNameBytes - 1);
  EXPECT_EQ(set_text(hello.job, std::string(kNameBytes, 'a'), "job").code(), Code::kBadArgument);
}

TEST(Message, TextsHaveNoControlCharacters) {
  auto hello = make_message<Hello>(MessageKind::kHello, 1);
  for (const std::string_view text : {std::string_view("a\0b", 3), std::string_view("a\nb"),
                                      std::string_view("\x1b[2J"), std::string_view("a\x7f"),
                                      std::string_view("\xC2\x9B"
                                                       "2J")}) {
    const Status refused = set_text(hello.job, text, "job");
    EXPECT_EQ(refused.code(), Code::kBadArgument);
    EXPECT_THAT(refused.message(), HasSubstr("job contains a control character"));
    if (text[1] == '\0') continue;
    std::memset(hello.job, 0, sizeof hello.job);
    text.copy(hello.job, sizeof hello.job - 1);
    EXPECT_EQ(checked_text(hello.job, "job").error().code(), Code::kProtocol);
  }
  for (const std::string_view text : {"", "model.py:311", "modèle", "\xC2\xA0", "\xC2"}) {
    ASSERT_TRUE(set_text(hello.job, text, "job").ok());
    EXPECT_EQ(checked_text(hello.job, "job").value(), text);
  }
}

TEST(Message, AnAnswerIsTheAnswerOrAFailure) {
  auto grant = make_message<BufferGrant>(MessageKind::kBufferGrant, 9);
  grant.buffer = 77;
  const auto answered = checked_answer<BufferGrant>(bytes_of(grant), MessageKind::kBufferGrant, 9);
  ASSERT_TRUE(answered);
  EXPECT_EQ(answered->buffer, 77u);
  EXPECT_EQ(checked_answer<BufferGrant>(bytes_of(grant), MessageKind::kBufferGrant, 8).error().code(),
            Code::kProtocol);

  const auto failed = make_failure(failure(Code::kNoResource, "needs 5, has 4"), 9);
  const auto refused = checked_answer<BufferGrant>(bytes_of(failed), MessageKind::kBufferGrant, 9);
  EXPECT_EQ(refused.error().code(), Code::kNoResource);
  EXPECT_EQ(refused.error().message(), "needs 5, has 4");
  const auto unread = make_failure(failure(Code::kNoResource, "no descriptors"), 0);
  EXPECT_EQ(checked_answer<BufferGrant>(bytes_of(unread), MessageKind::kBufferGrant, 9).error().message(),
            "no descriptors")
      << "sent before the request was read";
}

TEST(Message, AFailureNeverReadsAsWellDone) {
  for (const std::int32_t status : {0, 1, 5, -999, INT32_MIN}) {
    auto message = make_failure(failure(Code::kNoResource, "text"), 1);
    message.status = status;
    EXPECT_EQ(status_of(message).code(), Code::kProtocol) << status;
    EXPECT_EQ(checked_answer<Plain>(bytes_of(message), MessageKind::kDone, 1).error().code(), Code::kProtocol)
        << status;
  }
  auto message = make_failure(failure(Code::kNoResource, "text"), 1);
  message.length = kErrorTextBytes + 1;
  EXPECT_EQ(status_of(message).code(), Code::kProtocol);
  EXPECT_EQ(make_failure(Status(Code::kConfig, std::string(5000, 'x')), 1).length, kErrorTextBytes);
}

// Goal: no bytes whatever do harm; under the sanitizers this reads nothing outside its buffer.
TEST(Message, SurvivesGarbage) {
  const std::uint64_t seed = 7;
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes(random() % 200);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    if (bytes.size() >= sizeof(MessageHeader) && round % 2 == 0) {  // a header that passes
      MessageHeader header{.kind = MessageKind::kBufferAlloc,
                           .bytes = static_cast<std::uint32_t>(bytes.size())};
      std::memcpy(bytes.data(), &header, sizeof header);
    }
    const auto result = checked<BufferAlloc>(bytes, MessageKind::kBufferAlloc);
    EXPECT_EQ(result.has_value(), round % 2 == 0 && bytes.size() == sizeof(BufferAlloc)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace muster::shm
