#include "daemon/supervisor/spanning/engine_links.hpp"

#include "api/shm/message.hpp"
#include "tests/daemon/supervisor/lone_peers.hpp"
#include "tests/support/manual_clock.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using namespace std::chrono_literals;
using control::Json;
using control::Packet;
using shm::MessageKind;
using ::testing::HasSubstr;

constexpr std::uint64_t kEpoch = 41;
const NodeIndex kOther(1);

// Job "train" with a rank on node0 and one on node1. This is node0's side. The test plays the engine of node0
// and the supervisor of node1.
class EngineLinksTest : public ::testing::Test {
 protected:
  EngineLinksTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    engine_ = shm::Descriptor(ends[0]);
    RunningJobs::KeptEngine kept;
    kept.channel = shm::Descriptor(ends[1]);
    kept.pidfd = shm::Descriptor(eventfd(0, EFD_CLOEXEC));
    channel_ = shm::Descriptor(dup(ends[1]));
    SavedJob job;
    job.spec = spec_;
    jobs_.adopt(job, std::move(kept));
    other_.open();
    here_.open();
    EXPECT_TRUE(until([this] { return here_.up.contains("node1") && other_.up.contains("node0"); }));
  }
  static control::JobSpec spec() {
    control::JobSpec spec;
    spec.name = "train";
    spec.mesh = "dp_shard=2";
    spec.epoch = kEpoch;
    const std::uint32_t node_of[] = {0, 1};
    spec.world = *World::build({"node0", "node1"}, node_of, NodeIndex(0));
    return spec;
  }
  static Options options() {
    Options options;
    options.random_word = [] { return 0; };
    return options;
  }
  bool until(const std::function<bool()>& done) {
    for (const Instant end = real_clock_.now() + 20s; real_clock_.now() < end; loop_.turn())
      if (done()) return true;
    return false;
  }
  void let_run(Nanos time) {
    for (const Instant end = real_clock_.now() + time; real_clock_.now() < end;) {
      while (loop_.turn()) {
      }
      std::this_thread::sleep_for(1ms);
    }
  }

  // ---- the engine --------------------------------------------------------------------------------
  // It does not read: its channel takes nothing more.
  void fill_channel() {
    while (shm::send_message(channel_, std::as_bytes(std::span("more"))).ok()) {
    }
  }
  void empty_channel() {
    std::array<char, 64> bytes;
    while (recv(engine_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
  }
  Packet asked(const char* command) {
    Result<Packet> packet = fail(Code::kPending, "nothing has come");
    EXPECT_TRUE(until([&] { return (packet = control::receive_packet(engine_)).has_value(); }));
    EXPECT_EQ(packet->body.value("command", ""), command);
    return *std::move(packet);
  }
  void answer(const Packet& question, const Json& result) {
    EXPECT_TRUE(
        control::send_packet(engine_, MessageKind::kReply, question.serial, control::success(result)).ok());
  }
  void say(const Json& event) {
    EXPECT_TRUE(control::send_packet(engine_, MessageKind::kCommand, 0, event).ok());
  }

  // ---- the other node ----------------------------------------------------------------------------
  Json told(const char* step) {
    EXPECT_TRUE(until([this] { return !other_.heard.empty(); })) << step;
    if (other_.heard.empty()) return Json::object();
    const Json message = other_.heard.front().second;
    other_.heard.erase(other_.heard.begin());
    EXPECT_EQ(message.value("step", ""), step);
    return message;
  }
  void hear(EngineLinks& links, const Json& message) {
    EXPECT_TRUE(other_.peers.send("node0", message));
    ASSERT_TRUE(until([this] { return !here_.heard.empty(); }));
    const auto [node, heard] = here_.heard.front();
    here_.heard.clear();
    links.heard(node, heard.at("step"), heard);
  }

  control::Loop loop_;
  const SteadyClock real_clock_;
  muster::test::ManualClock clock_;
  const Options options_ = options();
  const control::JobSpec spec_ = spec();
  const Roster roster_ = plain_roster(2);
  LonePeer here_{loop_, clock_, roster_, 0}, other_{loop_, clock_, roster_, 1};
  JobTable table_{Shares({.all = 4, .reserved = 0, .of_one = 4}, 7)};
  DescriptorStore store_{{}, 0};
  JobMemory memory_{loop_, store_, {}, 7};
  control::NodeCostBook costs_{NodeCosts(), ""};
  std::function<void(const RunningJobs::EngineEvent&)> on_word_ = [](const RunningJobs::EngineEvent&) {};
  shm::Descriptor engine_, channel_;
  RunningJobs jobs_{
      loop_,
      table_,
      memory_,
      store_,
      costs_,
      options_,
      {.owned = {},
       .disowned = {},
       .ready = {},
       .heard = [this](const std::string&, const RunningJobs::EngineEvent& word) { on_word_(word); },
       .ending = {},
       .gone = {},
       .idle = {},
       .changed = [] {},
       .save = [] {},
       .reserved = {}}};
};

// Goal:   the timer of an attempt touches neither a connection that was made since, nor a part that has ended
//         since.
// Method: a part ends while its engine is asked. The first question of another fails at once, because the
//         engine does not read, and its next attempt succeeds. Then the time of all attempts passes.
TEST_F(EngineLinksTest, ForgetTheTimeOfAnAttemptThatIsOver) {
  int changes = 0, changes_of_ended = 0;
  EngineLinks ended(loop_, clock_, jobs_, here_.peers, spec_, [&] { ++changes_of_ended; });
  ended.on_up("node1", kEpoch);
  ended.begin_disconnected(kEpoch);
  asked("network");
  ended.end(nullptr);
  EngineLinks links(loop_, clock_, jobs_, here_.peers, spec_, [&] { ++changes; });
  on_word_ = [&](const RunningJobs::EngineEvent& word) { links.on_word(word); };
  links.on_up("node1", kEpoch);
  fill_channel();
  links.begin_disconnected(kEpoch);
  EXPECT_THAT(links.lacks(), HasSubstr("node node1 is apart: "));
  empty_channel();
  Json its_links = Json::array({Json::object(), {{"connected", false}, {"generation", 3}}});
  answer(asked("network"), {{"links", its_links}});
  EXPECT_EQ(told("join").value("generation", 0), 3);
  hear(links, {{"step", "here"}, {"epoch", kEpoch}, {"generation", 4}});
  answer(asked("connect"), Json::object());
  say({{"event", "connected"}, {"ok", true}, {"node", kOther.value}, {"generation", 4}});
  ASSERT_TRUE(until([&] { return links.lacks().empty(); })) << links.lacks();
  changes = changes_of_ended = 0;
  let_run(EngineLink::kAnswerTime + 1s);
  EXPECT_EQ(links.lacks(), "");
  EXPECT_EQ(changes, 0);
  EXPECT_EQ(changes_of_ended, 0);
  EXPECT_FALSE(control::receive_packet(engine_)) << "nothing is asked of the engine";
  EXPECT_TRUE(other_.heard.empty());
}

}  // namespace
}  // namespace muster::supervisor
