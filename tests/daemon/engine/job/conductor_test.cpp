#include "daemon/engine/job/conductor.hpp"

#include "api/shm/message.hpp"
#include "daemon/control/engine_address.hpp"
#include "tests/daemon/engine/engine_fixture.hpp"
#include "tests/support/manual_clock.hpp"
#include "tests/transport/span/sealed.hpp"
#include "transport/endpoint/library.hpp"
#include "transport/span/wire.hpp"

#include <cstddef>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace muster::engine {
namespace {

using control::Json;
using shm::MessageKind;

constexpr std::uint32_t kWorld = 16;

// An engine's conductor on a thread of its own, and this test as its supervisor.
class ConductorTest : public ::testing::Test {
 protected:
  // `time_passes`: for the engine.
  explicit ConductorTest(bool time_passes = true) {
    auto [ours, theirs] = pair();
    const int least = 1;  // room for a few messages only
    EXPECT_EQ(setsockopt(theirs.get(), SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
    channel_ = std::move(ours);
    conductor_ = std::make_unique<Conductor>(
        std::move(theirs), time_passes ? static_cast<const Clock&>(clock_) : standing_clock_);
    thread_ = std::thread([this] { conductor_->run(); });
  }
  ~ConductorTest() override {
    channel_.reset();
    clients_.clear();
    thread_.join();
  }
  static std::pair<shm::Descriptor, shm::Descriptor> pair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    return {shm::Descriptor(ends[0]), shm::Descriptor(ends[1])};
  }
  Instant soon() const { return clock_.now() + std::chrono::seconds(20); }
  Json hear() {
    const auto packet = control::receive_packet(channel_, soon(), clock_);
    EXPECT_TRUE(packet) << packet.error().text();
    return packet ? packet->body : Json::object();
  }
  void tell(const Json& command, std::span<const int> descriptors = {}) {
    ASSERT_TRUE(control::send_packet(channel_, MessageKind::kCommand, ++serial_, command, descriptors).ok());
  }
  void ask_to_attach(std::uint32_t rank, Nanos patience = std::chrono::seconds(60)) {
    auto [ours, theirs] = pair();
    const shm::Descriptor self(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
    const int descriptors[] = {theirs.get(), self.get()};
    tell({{"command", "attach"},
          {"rank", rank},
          {"pid", getpid()},
          {"serial", 1},
          {"timeout_ns", patience.count()}},
         descriptors);
    clients_.push_back(std::move(ours));
  }
  void attach(std::uint32_t rank, Nanos patience = std::chrono::seconds(60)) {
    ask_to_attach(rank, patience);
    EXPECT_TRUE(hear().value("ok", false)) << rank;
  }

  SteadyClock clock_;
  muster::test::ManualClock standing_clock_;
  shm::Descriptor channel_;
  std::unique_ptr<Conductor> conductor_;
  std::thread thread_;
  std::vector<shm::Descriptor> clients_;
  std::uint32_t serial_ = 0;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(shm::kMessageBytesMax);
};

// Goal:   a supervisor that does not read for a while hears of every departure, and is answered as before.
TEST_F(ConductorTest, KeepsWhatTheSupervisorHasNoRoomFor) {
  tell({{"command", "create"}, {"spec", control::to_json(test::small_job(kWorld))}});
  ASSERT_TRUE(hear().value("ok", false));
  for (std::uint32_t rank = 0; rank < kWorld; ++rank) attach(rank);
  clients_.clear();
  std::this_thread::sleep_for(std::chrono::milliseconds(400));  // mostly their ends are seen by then
  std::set<std::uint32_t> gone;
  while (gone.size() < kWorld && !HasFailure()) {
    const Json event = hear();
    ASSERT_EQ(event.value("event", ""), "detached") << event;
    gone.insert(event.at("rank").get<std::uint32_t>());
  }
  tell({{"command", "report"}});
  EXPECT_EQ(hear().at("result").at("ranks").size(), kWorld);
}

// An engine whose owner has another job that holds all of the share.
class ShortOfMemoryTest : public ConductorTest {
 protected:
  ShortOfMemoryTest() {
    page_.set_limits({.share = kShare, .limit = kShare});
    EXPECT_TRUE(page_.give(kIdle) && page_.give(kOwn));
    idle_ = *MemoryAccount::attach(page_.descriptor(), *page_.slot_of(kIdle));
    charge_ = *MemoryAccount::charge(idle_, kShare - 1);
  }
  void ask_to_create() {
    const int page = page_.descriptor().get();
    tell({{"command", "create"},
          {"spec", control::to_json(test::small_job(1))},
          {"memory_slot", *page_.slot_of(kOwn)}},
         std::span(&page, 1));
  }
  void expect_shortage() {
    const Json event = hear();
    EXPECT_EQ(event.value("event", ""), "short_of_memory") << event;
    EXPECT_GT(event.value("bytes", std::uint64_t{0}), 1u);
  }
  void say_room(bool room) { tell({{"command", "memory"}, {"room", room}}); }
  // In whatever order.
  std::vector<Json> hear_two() { return {hear(), hear()}; }

  static constexpr std::uint64_t kShare = std::uint64_t{1} << 30, kRequest = 512 << 10;
  static constexpr std::uint64_t kIdle = 1, kOwn = 2;
  shm::MemoryPage page_ = *shm::MemoryPage::create(1001, 0, 7, shm::memory_headroom());
  std::shared_ptr<MemoryAccount> idle_;
  MemoryCharge charge_;
};

// Goal:   a job whose memory others hold is made once there is room.
TEST_F(ShortOfMemoryTest, WaitsWithTheJob) {
  ask_to_create();
  expect_shortage();
  say_room(true);  // it was another's: the engine asks again
  std::size_t events = 0;
  for (const Json& word : hear_two()) events += word.contains("event");
  EXPECT_EQ(events, 1u);
  charge_ = MemoryCharge();
  say_room(true);
  for (const Json& answer : hear_two()) EXPECT_TRUE(answer.value("ok", false)) << answer;
  attach(0);
}

// Goal:   without room it is refused with the reason, and the engine ends.
TEST_F(ShortOfMemoryTest, RefusesTheJobWithoutRoom) {
  ask_to_create();
  expect_shortage();
  say_room(false);
  std::set<int> statuses;
  for (const Json& answer : hear_two()) statuses.insert(answer.value("status", 0));
  EXPECT_TRUE(statuses.contains(MUSTER_ERR_NO_RESOURCE));
}

// Goal:   a supervisor that was started anew asks for the job again: the first command counts no longer.
TEST_F(ShortOfMemoryTest, TakesASecondCommandInPlaceOfTheFirst) {
  ask_to_create();
  expect_shortage();
  ask_to_create();
  charge_ = MemoryCharge();
  say_room(true);
  for (const Json& answer : hear_two()) EXPECT_TRUE(answer.value("ok", false)) << answer;
  tell({{"command", "report"}});
  EXPECT_EQ(hear().at("result").at("ranks").size(), 1u) << "nothing else was answered";
}

// Goal:   an engine that waits can be stopped.
TEST_F(ShortOfMemoryTest, StopsWhileItWaits) {
  ask_to_create();
  expect_shortage();
  tell({{"command", "stop"}, {"text", "by a test"}});
  EXPECT_TRUE(hear().value("ok", false));
}

// Goal:   a client's request waits for half of its patience at most, and then hears why it is refused.
TEST_F(ShortOfMemoryTest, AnswersAClientBeforeItGivesUp) {
  charge_ = MemoryCharge();
  ask_to_create();
  ASSERT_TRUE(hear().value("ok", false));
  attach(0, std::chrono::milliseconds(200));
  const auto held = *MemoryAccount::charge(idle_, kShare - page_.held() - kRequest / 2);
  ASSERT_TRUE(shm::receive_message(clients_[0], buffer_)) << "its welcome";
  auto request = shm::make_message<shm::BufferAlloc>(MessageKind::kBufferAlloc, 7);
  request.bytes = kRequest;
  ASSERT_TRUE(shm::send_message(clients_[0], shm::bytes_of(request)).ok());
  expect_shortage();
  const Instant begin = clock_.now();
  while (shm::receive_message(clients_[0], buffer_).error().code() == Code::kPending && clock_.now() < soon())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_LT(clock_.now() - begin, std::chrono::seconds(10)) << "not as long as the supervisor may take";
  shm::MessageHeader answer;
  std::memcpy(&answer, buffer_.data(), sizeof answer);
  EXPECT_EQ(answer.kind, MessageKind::kFailure);
  EXPECT_EQ(answer.serial, 7u);
}

// Goal:   an engine connects with the nodes that it is told, and says afterwards how that ended.
TEST_F(ConductorTest, ConnectsWithTheEnginesOfOtherNodes) {
  control::JobSpec spec = test::small_job(2);
  spec.world = *World::build({"node1", "node2"}, std::vector<std::uint32_t>{0, 1}, NodeIndex(1));
  const auto connect = [this](const Json& calls) {
    tell({{"command", "connect"}, {"calls", calls}});
    return hear();
  };
  const Json call{{"node", 0}, {"address", Json::binary({1, 2, 3})}, {"generation", 4}};
  EXPECT_FALSE(connect(Json::array({call})).value("ok", true)) << "there is no job yet";
  tell({{"command", "create"}, {"spec", control::to_json(spec)}});
  const Json made = hear();
  ASSERT_TRUE(made.value("ok", false)) << made;
  EXPECT_FALSE(made.at("result").contains("address")) << "loopback has none";
  Json elsewhere = call, nowhere = call, no_bytes = call;
  elsewhere["node"] = 2;
  nowhere.erase("node");
  no_bytes["address"] = "node1";
  for (const Json& wrong : {Json(), Json::array({"node1"}), Json::array({elsewhere}), Json::array({nowhere}),
                            Json::array({no_bytes}), Json::array({call, call, call})})
    EXPECT_EQ(connect(wrong).value("status", 0), MUSTER_ERR_PROTOCOL) << wrong;
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(connect(Json::array({call})).value("ok", false));
    const Json event = hear();
    EXPECT_EQ(event.value("event", ""), "connected");
    EXPECT_EQ(event.value("node", 9), 0);
    EXPECT_EQ(event.value("generation", 0), 4);
    EXPECT_TRUE(event.value("ok", false));
  }
  tell({{"command", "network"}});
  EXPECT_EQ(hear().at("result").at("links").size(), 2u);
  tell({{"command", "lose"}, {"node", 2}, {"why", "it is gone"}});
  EXPECT_EQ(hear().value("status", 0), MUSTER_ERR_BAD_ARGUMENT);
  tell({{"command", "lose"}, {"node", 0}, {"why", "it is gone"}});
  EXPECT_TRUE(hear().value("ok", false));
}

// The engine of another node, which says hello, or nonsense.
//
// Owns    its network and its end of the connection.
// Thread  the test's.
// Bound   one message of each kind.
// Fails   the test.
class SilentEngine final : transport::Transfer {
 public:
  explicit SilentEngine(NodeIndex here) {
    auto network = transport::open_network(MUSTER_NETWORKS, "ofi", here);
    EXPECT_TRUE(network) << network.error().text();
    network_ = *std::move(network);
  }
  transport::Bytes address() const { return network_->address(); }
  void say_hello(NodeIndex to, transport::Bytes there) {
    auto endpoint = network_->connect(to, there);
    ASSERT_TRUE(endpoint) << endpoint.error().text();
    endpoint_ = *std::move(endpoint);
    hello_ = transport::test::sealed(transport::span::message_of(transport::span::HeaderKind::kHello, {}));
    ASSERT_TRUE(endpoint_->send(0, hello_, *this).ok());
  }
  void say_nonsense() {
    nonsense_ = hello_;
    nonsense_.back() ^= std::byte{1};
    ASSERT_TRUE(endpoint_->send(0, nonsense_, *this).ok());
  }
  void progress() { network_->progress(); }

 private:
  void done(const Status&, std::size_t) override {}

  std::vector<std::byte> hello_, nonsense_;
  std::unique_ptr<transport::Network> network_;
  std::unique_ptr<transport::Endpoint> endpoint_;
};

// No question to another node is over because of its time.
class WaitingRankTest : public ConductorTest {
 protected:
  WaitingRankTest() : ConductorTest(false) {}
  // Rank 0 of two, whose node expects that of rank 1.
  void make_job() {
    control::JobSpec spec = test::small_job(2);
    spec.world = *World::build({"node1", "node2"}, std::vector<std::uint32_t>{0, 1}, NodeIndex(0));
    spec.network = "ofi";
    spec.networks_directory = MUSTER_NETWORKS;
    tell({{"command", "create"}, {"spec", control::to_json(spec)}});
    const Json made = hear();
    ASSERT_TRUE(made.value("ok", false)) << made;
    const auto address = control::address_in(made.at("result"));
    ASSERT_TRUE(address);
    address_ = *address;
    const control::EngineCall call{NodeIndex(1), {other_.address().begin(), other_.address().end()}, 0};
    Json connect{{"command", "connect"}};
    control::write_calls(std::vector{call}, connect);
    tell(connect);
    ASSERT_TRUE(hear().value("ok", false));
  }
  void meet() {
    other_.say_hello(NodeIndex(0), address_);
    const Json event = hear_from_both();
    ASSERT_TRUE(event.value("ok", false)) << event;
  }
  // As hear(), while the other engine moves.
  Json hear_from_both() {
    auto packet = control::receive_packet(channel_);
    for (const Instant end = soon(); !packet && clock_.now() < end;
         packet = control::receive_packet(channel_))
      other_.progress();
    EXPECT_TRUE(packet) << packet.error().text();
    return packet ? packet->body : Json::object();
  }
  void leave() {
    clients_.clear();
    EXPECT_EQ(hear().value("event", ""), "detached");
  }
  // Asks to attach, and looks at the job. False: the rank was let in, and has left again, because the engine
  // had not yet seen in its turns that the other node is there.
  bool waits_while_somebody_looks() {
    ask_to_attach(0);
    for (int look = 0; look < 3; ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      tell({{"command", "report"}});
      const Json said = hear();
      if (said.contains("attachments")) {
        hear();  // the report
        leave();
        return false;
      }
      EXPECT_FALSE(said.at("result").at("ranks").at(0).at("attached").get<bool>()) << said;
    }
    return true;
  }

  control::EngineAddress address_;
  SilentEngine other_{NodeIndex(1)};
};

// Goal:   a rank that waits to hear of departures on other nodes is not let in because somebody looks at the
//         job. It is let in when a supervisor takes over, before that hears who is there.
TEST_F(WaitingRankTest, IsLetInByASupervisorThatTakesOverAlone) {
  ASSERT_NO_FATAL_FAILURE(make_job());
  attach(0);  // there is nobody to ask yet
  leave();
  ASSERT_NO_FATAL_FAILURE(meet());
  std::uint64_t attachments = 2;
  while (attachments < 100 && !waits_while_somebody_looks()) ++attachments;
  tell({{"command", "report"}, {"takes_over", true}});
  const Json let_in = hear();
  EXPECT_TRUE(let_in.value("ok", false)) << let_in;
  ASSERT_EQ(let_in.value("attachments", 0u), attachments) << let_in;
  EXPECT_TRUE(hear().at("result").at("ranks").at(0).at("attached").get<bool>());
}

// Goal:   a supervisor hears of a connection that ends, and so can begin another one.
TEST_F(WaitingRankTest, HasASupervisorThatHearsOfALoss) {
  ASSERT_NO_FATAL_FAILURE(make_job());
  ASSERT_NO_FATAL_FAILURE(meet());
  ASSERT_NO_FATAL_FAILURE(other_.say_nonsense());
  const Json lost = hear_from_both();
  EXPECT_EQ(lost.value("event", ""), "lost") << lost;
  EXPECT_EQ(lost.value("node", 9u), 1u);
  EXPECT_EQ(lost.value("generation", 9u), 0u);
  EXPECT_FALSE(lost.value("ok", true));
  EXPECT_NE(lost.value("error", "").find("node2"), std::string::npos) << lost;
}

TEST_F(ConductorTest, MakesNoJobWhoseNetworkIsNotThere) {
  control::JobSpec spec = test::small_job(2);
  spec.network = "ucx";
  spec.networks_directory = "/nowhere";
  tell({{"command", "create"}, {"spec", control::to_json(spec)}});
  const Json refused = hear();
  EXPECT_EQ(refused.value("status", 0), MUSTER_ERR_NOT_FOUND);
  EXPECT_NE(refused.value("error", "").find("network ucx: /nowhere/ucx.so"), std::string::npos) << refused;
}

}  // namespace
}  // namespace muster::engine
