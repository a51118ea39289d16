#include "daemon/supervisor/jobs/state.hpp"

#include "daemon/supervisor/takeover/state_file.hpp"

#include <algorithm>
#include <functional>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Json;
using ::testing::HasSubstr;

State sample() {
  State state;
  state.epoch = 0xfedcba9876543210;
  state.instance = 7;
  state.started_ns = 123'456'789;
  state.upgrade_ns = 42;
  state.managers_socket_stood = true;
  SavedJob job;
  job.spec.name = "train";
  job.spec.world = 4;
  job.spec.mesh = "dp_shard=4";
  job.spec.claim = control::ClaimRule::kToken;
  job.spec.epoch = 99;
  job.gid = 100;
  job.engine_pid = 4711;
  job.owner = 3;
  job.ending = "its owner has left";
  job.tokens = {{0, 2, "aa"}, {3, 0, "bb"}};
  job.origins = {{0, "88", "99"}, {3, "88", ""}};
  state.jobs.push_back(job);
  job.spec.name = "other";
  job.spec.epoch = 100;
  job.made = true;
  job.tokens.clear();
  state.jobs.push_back(job);
  return state;
}

void expect_equal(const State& a, const State& b) {
  // Both states are encoded alike, so every field came through.
  EXPECT_EQ(encode(a, {}, 1), encode(b, {}, 1));
}

TEST(State, ReadsBackWhatWasWritten) {
  const auto bytes = encode(sample(), {}, 5);
  const auto decoded = decode(bytes, 1);
  ASSERT_TRUE(decoded) << decoded.error().text();
  EXPECT_EQ(decoded->version, 1u);
  EXPECT_EQ(decoded->sequence, 5u);
  EXPECT_EQ(decoded->state.epoch, 0xfedcba9876543210);
  EXPECT_TRUE(decoded->state.managers_socket_stood);
  ASSERT_EQ(decoded->state.jobs.size(), 2u);
  EXPECT_EQ(decoded->state.jobs[0].tokens[1].text, "bb");
  ASSERT_EQ(decoded->state.jobs[0].origins.size(), 2u);
  EXPECT_EQ(decoded->state.jobs[0].origins[0].seen, "88");
  EXPECT_EQ(decoded->state.jobs[0].origins[0].said, "99");
  EXPECT_EQ(decoded->state.jobs[0].origins[1].rank, 3u);
  EXPECT_EQ(decoded->state.jobs[0].ending, "its owner has left");
  EXPECT_FALSE(decoded->state.jobs[0].made);
  EXPECT_TRUE(decoded->state.jobs[1].made);
  EXPECT_EQ(decoded->state.jobs[1].spec.name, "other");
  expect_equal(decoded->state, sample());
}

TEST(State, RefusesEveryTruncation) {
  const auto bytes = encode(sample(), {}, 1);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto decoded = decode(std::span(bytes).first(size), 1);
    ASSERT_FALSE(decoded) << size;
    EXPECT_EQ(decoded.error().code(), Code::kProtocol) << size;
  }
}

TEST(State, RefusesEveryFlippedBit) {
  auto bytes = encode(sample(), {}, 1);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const auto mask = static_cast<std::byte>(1u << (bit % 8));
    bytes[bit / 8] ^= mask;
    EXPECT_FALSE(decode(bytes, 1)) << "bit " << bit % 8 << " of byte " << bit / 8;
    bytes[bit / 8] ^= mask;
  }
  EXPECT_TRUE(decode(bytes, 1));
}

TEST(State, IsReadByTheVersionsThatItNames) {
  const auto later = encode(sample(), {3, 2, {{"more", {{"than", "we know"}}}}}, 1);
  EXPECT_EQ(decode(later, 1).error().code(), Code::kVersion);
  EXPECT_THAT(decode(later, 1).error().message(), HasSubstr("version 3, for readers from version 2 on"));
  for (const std::uint32_t reader : {2u, 3u, 4u}) EXPECT_TRUE(decode(later, reader)) << reader;
  EXPECT_TRUE(decode(encode(sample(), {1, 1, {}}, 1), 9)) << "an older state";
  EXPECT_FALSE(decode(encode(sample(), {0, 0, {}}, 1), 1)) << "no version at all";
}

// Goal:   a step back and forth again loses nothing.
TEST(State, CarriesFieldsOfLaterVersionsAlong) {
  const State::Format next{2, 1, {{"more", 1}}};
  const auto here = decode(encode(sample(), next, 1), 1);
  ASSERT_TRUE(here);
  State state = here->state;
  EXPECT_EQ(state.later, (Json{{"more", 1}}));
  state.later["more"] = 5;  // as the later version would
  const auto back = decode(encode(state, {}, 2), 2);
  ASSERT_TRUE(back);
  const auto again = decode(encode(back->state, next, 3), 2);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->state.later, (Json{{"more", 5}})) << "not its first value once more";
}

// The same of a job and of its spec.
TEST(State, CarriesLaterFieldsOfJobsAlong) {
  State state = sample();
  state.jobs[0].later["more"] = 5;
  state.jobs[0].spec_later["limit"] = {{"of", "tomorrow"}};
  const auto here = decode(encode(state, {}, 1), 1);
  ASSERT_TRUE(here) << here.error().text();
  EXPECT_EQ(here->state.jobs[0].later, (Json{{"more", 5}}));
  EXPECT_EQ(here->state.jobs[0].spec_later, (Json{{"limit", {{"of", "tomorrow"}}}}));
  EXPECT_TRUE(here->state.jobs[1].later.empty());
  EXPECT_TRUE(here->state.jobs[1].spec_later.empty());
  expect_equal(here->state, state);
}

// Goal:   engines that speak otherwise are known before they are spoken to.
TEST(State, SaysHowItsEnginesSpeak) {
  const State::Format format{1, 1, {}, 5};
  State state = sample();
  state.protocol = 5;
  const auto same = decode(encode(state, {}, 1), 1);
  ASSERT_TRUE(same);
  EXPECT_TRUE(check_protocol(same->state, format).ok());
  for (const std::uint32_t other : {0u, 4u, 6u}) {
    state.protocol = other;
    const auto decoded = decode(encode(state, {}, 1), 1);
    ASSERT_TRUE(decoded) << other;
    EXPECT_EQ(check_protocol(decoded->state, format).code(), Code::kVersion) << other;
  }
}

// Goal:   no reason for an end, however long and whatever its bytes, makes the state one that nobody reads.
TEST(State, CutsReasonsToWhatAReaderTakes) {
  for (const std::string& piece :
       {std::string("x"), std::string("\xff"), std::string("\u00e4"), std::string(1, '\0')}) {
    for (const std::size_t size : {1365u, 1366u, 2048u, 4096u, 4097u, 100'000u}) {
      State state = sample();
      state.jobs[0].ending.clear();
      while (state.jobs[0].ending.size() < size) state.jobs[0].ending += piece;
      const auto bytes = encode(state, {}, 1);
      const auto decoded = decode(bytes, 1);
      ASSERT_TRUE(decoded) << size << ": " << decoded.error().text();
      EXPECT_EQ(encode(decoded->state, {}, 1), bytes) << size;
      if (piece != "x") continue;
      EXPECT_EQ(decoded->state.jobs[0].ending, std::string(std::min<std::size_t>(size, 4096), 'x'));
    }
  }
}

// Bytes that are whole and say something else than they should.
class Forged : public ::testing::Test {
 protected:
  // The body of a state as somebody else would have it, with a checksum that is right.
  static Result<Decoded> decoded(const std::function<void(Json&)>& change) {
    Json body{{"epoch", 1u}, {"instance", 1u}, {"started_ns", 1u}, {"upgrade_ns", 0u}};
    const auto bytes = encode(sample(), {}, 1);
    const auto* first = reinterpret_cast<const char*>(bytes.data()) + sizeof(State::Header);
    body["jobs"] = Json::parse(first, first + bytes.size() - sizeof(State::Header)).at("jobs");
    change(body);
    return decode(sealed(body.dump()), 1);
  }
  static std::vector<std::byte> sealed(const std::string& body) {
    State::Header header;
    header.version = header.oldest_reader = 1;
    header.length = body.size();
    return seal(header, std::as_bytes(std::span(body)));
  }
};

TEST_F(Forged, IsReadAsItIs) {
  EXPECT_TRUE(decoded([](Json&) {}));
}

TEST_F(Forged, MissesAFieldOrHasOneOfAnotherKind) {
  for (const char* field : {"epoch", "instance", "started_ns", "upgrade_ns", "jobs"}) {
    EXPECT_FALSE(decoded([&](Json& body) { body.erase(field); })) << field;
    EXPECT_FALSE(decoded([&](Json& body) { body[field] = "text"; })) << field;
    EXPECT_FALSE(decoded([&](Json& body) { body[field] = -1; })) << field;
    EXPECT_FALSE(decoded([&](Json& body) { body[field] = nullptr; })) << field;
  }
  for (const char* field : {"spec", "gid", "engine_pid", "owner", "ending", "tokens"}) {
    EXPECT_FALSE(decoded([&](Json& body) { body["jobs"][0].erase(field); })) << field;
    EXPECT_FALSE(decoded([&](Json& body) { body["jobs"][0][field] = 1.5; })) << field;
  }
  for (const Json& protocol : {Json(0u), Json("text"), Json(1ull << 32)})
    EXPECT_FALSE(decoded([&](Json& body) { body["protocol"] = protocol; })) << protocol;
  EXPECT_FALSE(decoded([](Json& body) { body["managers_socket_stood"] = 1u; }));
  EXPECT_FALSE(decoded([](Json& body) { body["jobs"][0]["engine_pid"] = 1ull << 31; }));
  EXPECT_FALSE(decoded([](Json& body) { body["jobs"][0]["spec"]["world"] = 1u << 20; }));
  EXPECT_FALSE(decoded([](Json& body) { body["jobs"][0]["tokens"][0]["rank"] = 4u; })) << "beyond its world";
  // They matter less than the job: a bad one is left out.
  EXPECT_TRUE(decoded([](Json& body) { body["jobs"][0]["origins"][0]["rank"] = 4u; })) << "beyond its world";
  EXPECT_TRUE(decoded([](Json& body) { body["jobs"][0]["origins"] = {1234}; }));
  EXPECT_TRUE(decoded([](Json& body) { body["jobs"][0].erase("origins"); })) << "of an older daemon";
  EXPECT_FALSE(decoded([](Json& body) { body["jobs"][0]["tokens"][0]["text"] = std::string(80, 'x'); }));
  EXPECT_FALSE(decoded([](Json& body) { body["jobs"][1]["spec"]["name"] = "train"; })) << "twice";
  EXPECT_FALSE(decoded([](Json& body) { body["jobs"][1]["spec"]["epoch"] = 99u; })) << "twice";
  EXPECT_FALSE(decoded([](Json& body) { body["jobs"].push_back(1); }));
}

TEST_F(Forged, IsNoJsonOrTooDeep) {
  for (const std::string& body : {std::string(), std::string("{"), std::string("[]"), std::string("{}x"),
                                  "{\"epoch\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}",
                                  std::string(1'000'000, '[')})
    EXPECT_FALSE(decode(sealed(body), 1)) << body.substr(0, 20);
}

// ---- the file

TEST(StateFile, GivesTheLastStateToTheNextProcess) {
  auto file = StateFile::create();
  ASSERT_TRUE(file) << file.error().text();
  State state = sample();
  for (std::uint64_t i = 1; i <= 5; ++i) {
    state.instance = i;
    ASSERT_TRUE(file->write(state, {}).ok());
    auto successor = StateFile::adopt(shm::Descriptor(dup(file->descriptor().get())));
    ASSERT_TRUE(successor);
    const auto read = successor->read(1);
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(read->state.instance, i);
    // It writes on from there.
    state.instance = 100 + i;
    ASSERT_TRUE(successor->write(state, {}).ok());
    EXPECT_EQ(file->read(1)->state.instance, 100 + i);
  }
}

// Goal:   a writer that is killed in the middle leaves the former state.
// Method: every length of a write that was cut off, over a slot that held an older state.
TEST(StateFile, KeepsTheFormerStateWhileTheNextIsWritten) {
  auto file = StateFile::create();
  ASSERT_TRUE(file);
  State state = sample();
  for (std::uint64_t i = 1; i <= 3; ++i) {
    state.instance = i;
    ASSERT_TRUE(file->write(state, {}).ok());
  }
  const int fd = file->descriptor().get();
  state.instance = 2;
  const auto older = encode(state, {}, 2);
  state.instance = 4;
  state.upgrade_ns = 43;  // the bytes differ up to the end, so nothing is whole before that
  const auto next = encode(state, {}, 4);
  ASSERT_EQ(older.size(), next.size());
  for (std::size_t cut = 0; cut <= next.size(); ++cut) {
    ASSERT_EQ(pwrite(fd, older.data(), older.size(), 0), static_cast<ssize_t>(older.size()));
    ASSERT_EQ(pwrite(fd, next.data(), cut, 0), static_cast<ssize_t>(cut));
    auto successor = StateFile::adopt(shm::Descriptor(dup(fd)));
    const auto read = successor->read(1);
    ASSERT_TRUE(read) << cut << ": " << read.error().text();
    const bool whole = std::equal(next.begin() + static_cast<std::ptrdiff_t>(cut), next.end(),
                                  older.begin() + static_cast<std::ptrdiff_t>(cut));
    EXPECT_EQ(whole, cut + 1 >= next.size());
    EXPECT_EQ(read->state.instance, whole ? 4u : 3u) << cut;
  }
}

// A former state that could be read would be out of date.
TEST(StateFile, DoesNotFallBackFromAStateForOthers) {
  auto file = StateFile::create();
  ASSERT_TRUE(file->write(sample(), {}).ok());
  ASSERT_TRUE(file->write(sample(), {3, 3, {}}).ok());
  EXPECT_EQ(file->read(1).error().code(), Code::kVersion);
  EXPECT_TRUE(file->read(3));
}

TEST(StateFile, RefusesWhatIsNone) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const shm::Descriptor other(ends[1]);
  EXPECT_EQ(StateFile::adopt(shm::Descriptor(ends[0])).error().code(), Code::kProtocol);
  EXPECT_EQ(
      StateFile::adopt(shm::Descriptor(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING))).error().code(),
      Code::kProtocol);
  EXPECT_EQ(StateFile::create()->read(1).error().code(), Code::kProtocol) << "nothing was written";
}

TEST(StateFile, TakesNoMoreMemoryThanIsWritten) {
  auto file = StateFile::create();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(file->write(sample(), {}).ok());
  struct stat facts {};
  ASSERT_EQ(fstat(file->descriptor().get(), &facts), 0);
  EXPECT_LE(facts.st_blocks * 512, 4 * 4096);
}

}  // namespace
}  // namespace muster::supervisor
