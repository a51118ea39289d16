// A client that has been let in and then breaks every rule there is, beside a job that keeps all of them.
// T-02, T-03, T-05, T-06, T-07.
#include "tests/fault/raw_client.hpp"

#include "tests/fault/bystander.hpp"
#include "tests/fault/rounds.hpp"
#include "tests/support/contract.hpp"
#include "tests/support/holdings.hpp"

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

namespace muster {
namespace {

using Kind = shm::Command::Kind;
using shm::MessageKind;
using test::RawClient;

class HostileClient : public ::testing::Test {
 protected:
  void SetUp() override {
    node_.options.job_defaults.workers = 1;
    node_.start();
    bystanders_ = std::make_unique<test::Bystanders>(
        node_, test::Bystanders::Options{.runs = true, .core = cores_.left()});
  }
  // The job of the others has gone on, is right to the end, and hardly slower beside the abuse than before.
  void TearDown() override {
    bystanders_->await(20);
    bystanders_->stop();
    bystanders_->expect_undisturbed(kPromisedRatio, "p99 beside an abuse to p99");
  }
  // A window without, then one of abuse about as long, in turn: what else the machine does is in both. The
  // others have a core of their own, as a cluster gives it to a job; the rest is as busy with nothing in the
  // windows without, so that no difference is that of a core.
  template<class Act>
  void abuse(const Act& act) {
    const auto quiet_end = std::chrono::steady_clock::now() + latest_abuse_;
    while (std::chrono::steady_clock::now() < quiet_end) static_cast<void>(getppid());
    const auto begin = std::chrono::steady_clock::now();
    bystanders_->storm(true);
    act();
    bystanders_->await(2);  // one of them lies in this window, also on a machine that does something else
    bystanders_->storm(false);
    latest_abuse_ = std::max<Nanos>(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(20));
  }
  // An act that never waits, over and over.
  template<class Act>
  void abuse_for(Nanos time, const Act& act) {
    const auto once_and_again = [&] {
      for (const auto end = std::chrono::steady_clock::now() + time;
           std::chrono::steady_clock::now() < end && !HasFatalFailure();)
        act();
    };
    abuse(once_and_again);
  }
  RawClient attach(const char* job = "hostile") {
    return RawClient(node_.endpoint(), RawClient::hello_of(job, 0, 1));
  }

  void send_crowds();

  static constexpr double kPromisedRatio = 1.10;

  test::FirstCoreLeft cores_;
  test::Node node_;
  std::unique_ptr<test::Bystanders> bystanders_;

 private:
  Nanos latest_abuse_ = std::chrono::milliseconds(200);
};

// Goal:   T-02. Memory that changes while it is read ends a session at worst.
// Method: a thread that rewrites slots and tail with random words, as fast as it can, under the engine's
//         eyes.
TEST_F(HostileClient, RacesTheEngineInItsOwnRing) {
  for (int round = 0; round < test::rounds(4); ++round)
    abuse([&] {
      RawClient client = attach();
      ASSERT_TRUE(client.attached) << client.refusal.text();
      auto ring = shm::ring_writer(*client.submission, *client.completion);
      auto* words = reinterpret_cast<std::uint64_t*>(client.submission->writable_header());
      constexpr std::size_t kFirstSlot = shm::kRingOffset / sizeof(std::uint64_t);
      std::mt19937_64 random(static_cast<std::uint64_t>(round) + 1);
      for (int i = 0; i < 20'000 && client.closed() == Code::kOk; ++i) {
        shm::Command command;
        command.kind = Kind::kResetLane;
        command.lane = static_cast<std::uint16_t>(random() % MUSTER_LANE_CLASSES);
        if (ring.push(command) != Code::kOk) break;
        // Mostly bits of slots that the engine is about to read, which may or may not be noticed.
        const std::size_t at = kFirstSlot + random() % (64 * shm::SlotWords<shm::Command>::kCount);
        if (i > 100)
          shm::Published<std::uint64_t>(words + at).store(random() % 4 == 0 ? random() : random() % 9);
        if (!ring.doorbell_due()) continue;
        ASSERT_EQ(eventfd_write(client.bell(), 1), 0);
      }
      EXPECT_EQ(client.await_closed(), Code::kProtocol) << "round " << round;
    });
}

// Goal:   T-03. A tail that cannot be true ends the session that has it.
TEST_F(HostileClient, LiesInItsTail) {
  constexpr std::uint64_t kTails[] = {shm::kRingCapacity + 1, std::uint64_t{1} << 63, UINT64_MAX, 7};
  for (int round = 0; round < test::rounds(4); ++round)
    abuse([&, tail = kTails[round % 4]] {
      RawClient client = attach();
      ASSERT_TRUE(client.attached) << client.refusal.text();
      shm::Published<std::uint64_t>(&client.submission->writable_header()->tail).store_ordered(tail);
      ASSERT_EQ(eventfd_write(client.bell(), 1), 0);
      EXPECT_EQ(client.await_closed(), Code::kProtocol) << tail;
      EXPECT_TRUE(client.ended()) << tail;
      bystanders_->await(1);
    });
}

// Goal:   T-05. Memory that a client was given cannot be taken away, nor can it write what is the engine's.
// Method: all that a descriptor allows, while the neighbours work.
TEST_F(HostileClient, WorksAgainstItsMemory) {
  RawClient client = attach();
  ASSERT_TRUE(client.attached) << client.refusal.text();
  const auto work_against = [&] {
    for (const auto& memory : {&client.descriptors[0], &client.descriptors[1], &client.descriptors[3]}) {
      const int fd = memory->get();
      EXPECT_NE(ftruncate(fd, 0), 0);
      EXPECT_NE(ftruncate(fd, off_t{1} << 30), 0);
      static_cast<void>(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
      EXPECT_NE(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0) << "no more seals";
    }
    const int page = client.descriptors[1].get();
    EXPECT_EQ(mmap(nullptr, shm::kCompletionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0), MAP_FAILED);
    EXPECT_EQ(fallocate(page, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1)
        << "a hole in the completion page would be a write";
    const int group_page = client.descriptors[4].get();
    EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, group_page, 0), MAP_FAILED);
  };
  for (int round = 0; round < test::rounds(5); ++round)
    abuse_for(std::chrono::milliseconds(50), work_against);
  EXPECT_EQ(client.completion->page()->header.magic, shm::kMagicCompletion);
}

// Goal:   T-06. No use of the doorbell holds the engine up, whose loops may wait for nothing in it.
// Method: it is made to block, emptied under its reader, filled to the brim, and rung without end.
TEST_F(HostileClient, AbusesItsDoorbell) {
  RawClient client = attach();
  ASSERT_TRUE(client.attached) << client.refusal.text();
  ASSERT_EQ(fcntl(client.bell(), F_SETFL, 0), 0) << "a read would block from now on, everybody's";
  const auto ring = [&] {
    static_cast<void>(eventfd_write(client.bell(), 1));
    std::uint64_t stolen = 0;
    [[maybe_unused]] const auto got = read(client.bell(), &stolen, sizeof stolen);
  };
  for (int round = 0; round < test::rounds(5); ++round) abuse_for(std::chrono::milliseconds(200), ring);
  ASSERT_EQ(fcntl(client.bell(), F_SETFL, O_NONBLOCK), 0);
  ASSERT_EQ(eventfd_write(client.bell(), UINT64_MAX - 1), 0) << "one more ring would block";
  bystanders_->await(50);
  // Its own commands are served all the same.
  auto commands = shm::ring_writer(*client.submission, *client.completion);
  shm::Command command;
  command.kind = Kind::kResetLane;
  ASSERT_EQ(commands.push(command), Code::kOk);
  const Instant end = client.soon();
  const auto* head = &client.completion->page()->head;
  while (shm::Untrusted<std::uint64_t>(head).load() == 0 && client.clock.now() < end) usleep(1000);
  EXPECT_EQ(shm::Untrusted<std::uint64_t>(head).load(), 1u);
  EXPECT_EQ(client.closed(), Code::kOk);
}

// As many descriptors as one message carries.
void send_crowd(int socket, std::span<const std::byte> bytes) {
  constexpr std::size_t kCrowd = 253;  // SCM_MAX_FD
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(null, 0);
  alignas(cmsghdr) char control[CMSG_SPACE(kCrowd * sizeof(int))] = {};
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(kCrowd * sizeof(int));
  std::vector<int> crowd(kCrowd, null);
  std::memcpy(CMSG_DATA(header), crowd.data(), kCrowd * sizeof(int));
  static_cast<void>(sendmsg(socket, &message, MSG_NOSIGNAL));
  ::close(null);
}

// To the supervisor's door, and to an engine.
void HostileClient::send_crowds() {
  RawClient guest = attach();
  ASSERT_TRUE(guest.attached) << guest.refusal.text();
  auto stranger = shm::connect_to(node_.endpoint(), guest.soon(), guest.clock);
  ASSERT_TRUE(stranger);
  send_crowd(stranger->get(), shm::bytes_of(RawClient::hello_of("hostile", 0, 1)));
  const auto answer = shm::receive_message(*stranger, guest.buffer, guest.soon(), guest.clock);
  ASSERT_TRUE(answer);
  const auto refusal = shm::checked_answer<shm::Welcome>(std::span(guest.buffer).first(answer->bytes),
                                                         MessageKind::kWelcome, 1);
  ASSERT_FALSE(refusal);
  EXPECT_EQ(refusal.error().code(), Code::kProtocol);
  send_crowd(guest.socket.get(), shm::bytes_of(shm::make_message<shm::Plain>(MessageKind::kEventOpen, 1)));
  EXPECT_TRUE(guest.ended()) << "who sends an engine descriptors is no client";
}

// Goal:   T-07. Descriptors that nobody asked for stay with whoever sent them.
// Method: messages with as many as the kernel takes, to the supervisor's door and to an engine.
TEST_F(HostileClient, SendsDescriptorsByTheHundred) {
  const auto innocent = test::engines();
  ASSERT_EQ(innocent.size(), 1u);
  std::size_t there = 0, here = 0;
  pid_t engine = 0;
  for (int round = 0; round < test::rounds(20); ++round) {
    abuse_for(std::chrono::milliseconds(50), [&] { send_crowds(); });
    if (round > 0 || HasFatalFailure()) continue;
    // The job is made, and its first guest gone or going: no more than this is held from here on.
    const auto both = test::engines();
    ASSERT_EQ(both.size(), 2u);
    engine = both[0] == innocent[0] ? both[1] : both[0];
    there = test::holdings_of(engine).descriptors;
    here = test::holdings_of(getpid()).descriptors;
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_LE(test::await_descriptors(engine, there), there);
  EXPECT_LE(test::await_descriptors(getpid(), here), here) << "the supervisor lives in this process";
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  std::printf("descriptors were given back after %.3f s\n", spent.count());
  test::expect_promised(spent.count(), 1.0, "s until the last descriptor is given back");
}

}  // namespace
}  // namespace muster
