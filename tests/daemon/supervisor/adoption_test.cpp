// What a supervisor makes of what its predecessor left, before anything of its own has run.
#include "daemon/supervisor/supervisor.hpp"

#include "api/shm/message.hpp"

#include <map>
#include <set>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

shm::Descriptor copy_of(const shm::Descriptor& descriptor) {
  return shm::Descriptor(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 3));
}

// What the service manager keeps of a daemon with one job, whose engine is this test.
class Adoption : public ::testing::Test {
 protected:
  Adoption() : file_(*StateFile::create()) {
    job_.spec.name = "job";
    job_.spec.mesh = "dp_shard=1";
    job_.spec.epoch = 0x1f;
    job_.spec.owner_uid = geteuid();
    state_.instance = 1;
    auto [ours, theirs] = pair();
    engine_ = std::move(ours);
    kept_[channel_name(0x1f)] = std::move(theirs);
    kept_[pidfd_name(0x1f)] = shm::Descriptor(eventfd(0, EFD_CLOEXEC));
  }
  static std::pair<shm::Descriptor, shm::Descriptor> pair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    return {shm::Descriptor(ends[0]), shm::Descriptor(ends[1])};
  }
  void write() {
    state_.jobs = {job_};
    ASSERT_TRUE(file_.write(state_, {}).ok());
    kept_[kStateName] = copy_of(file_.descriptor());
  }
  // A daemon that has been started and not done anything yet.
  void start() {
    Options options;
    options.socket_path = path();
    options.engine_program = "/nonexistent";
    options.random_word = [this] { return ++words_; };
    options.notify = [this](const std::string& text, std::span<const int> descriptors) {
      const auto at = text.find("FDNAME=");
      if (at == std::string::npos) return true;
      const std::string name = text.substr(at + 7);
      if (descriptors.empty()) return kept_.erase(name), true;
      kept_[name] = shm::Descriptor(dup(descriptors[0]));
      return true;
    };
    std::vector<Inherited> inherited;
    for (const auto& [name, descriptor] : kept_) inherited.push_back({name, copy_of(descriptor)});
    auto opened = Supervisor::open(std::move(options), clock_, std::move(inherited));
    ASSERT_TRUE(opened) << opened.error().text();
    daemon_ = *std::move(opened);
  }
  // The next word of the daemon to the engine that is of this kind; the daemon runs meanwhile.
  control::Packet await_command(const std::string& command) {
    for (const Instant end = clock_.now() + std::chrono::seconds(20); clock_.now() < end; usleep(1000)) {
      while (daemon_->turn()) {
      }
      auto packet = control::receive_packet(engine_);
      if (packet && packet->body.value("command", "") == command) return *std::move(packet);
    }
    ADD_FAILURE() << "no " << command;
    return {};
  }
  void report() {
    const control::Packet asked = await_command("report");
    control::Json ranks = control::Json::array();
    for (std::uint32_t rank = 0; rank < job_.spec.world; ++rank)
      ranks.push_back({{"attached", false}, {"pid", 0}, {"attachments", 0u}});
    ASSERT_TRUE(control::send_packet(engine_, shm::MessageKind::kReply, asked.serial,
                                     control::success({{"ranks", ranks}}))
                    .ok());
  }
  // A client that has said what it wants.
  shm::Descriptor client(int rank, const std::string& token = "") {
    auto hello = shm::make_message<shm::Hello>(shm::MessageKind::kHello, 1);
    EXPECT_TRUE(shm::set_text(hello.job, "job", "job").ok());
    EXPECT_TRUE(shm::set_text(hello.token, token, "token").ok());
    hello.rank = rank;
    hello.world_size = static_cast<std::int32_t>(job_.spec.world);
    auto socket = shm::connect_to(path(), clock_.now() + std::chrono::seconds(20), clock_);
    EXPECT_TRUE(socket);
    EXPECT_TRUE(shm::send_message(*socket, shm::bytes_of(hello)).ok());
    while (daemon_->turn()) {
    }
    return *std::move(socket);
  }
  static std::string path() {
    return ::testing::TempDir() + fmt::format("/muster-adoption-{}.sock", getpid());
  }
  Result<Decoded> read() { return StateFile::adopt(copy_of(file_.descriptor()))->read(1); }

  SteadyClock clock_;
  StateFile file_;
  State state_;
  SavedJob job_;
  shm::Descriptor engine_;
  std::map<std::string, shm::Descriptor> kept_;
  std::uint64_t words_ = 0;
  std::unique_ptr<Supervisor> daemon_;
};

// Goal:   a job that was told to end is not forgotten to be ended where the successor is killed in the middle
//         of a write.
// Method: the newest slot is spoilt, so that the state before it counts.
TEST_F(Adoption, EndsWhatWasToEndAlsoAfterATornWrite) {
  job_.ending = "its owner has left";
  write();
  start();
  const auto last = read();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->state.jobs.at(0).ending, "its owner has left");
  const char spoilt = 'x';
  const auto offset = static_cast<off_t>((last->sequence % 2) * kStateBytesMax);
  ASSERT_EQ(pwrite(file_.descriptor().get(), &spoilt, 1, offset + sizeof(StateHeader)), 1);
  const auto before = read();
  ASSERT_TRUE(before);
  EXPECT_EQ(before->sequence, last->sequence - 1);
  EXPECT_EQ(before->state.jobs.at(0).ending, "its owner has left");
}

// 0 says that a job has no owner; a descriptor of that number is nobody's.
TEST_F(Adoption, TakesNoConnectionForTheOwnerOfAJobWithoutOne) {
  auto [ours, theirs] = pair();
  kept_[owner_name(0)] = std::move(theirs);
  write();
  start();
  EXPECT_FALSE(kept_.contains(owner_name(0)));
  EXPECT_TRUE(kept_.contains(channel_name(0x1f)));
  theirs.reset();
  ours.reset();
  while (daemon_->turn()) {
  }
  EXPECT_EQ(read()->state.jobs.at(0).ending, "") << "nobody has left";
}

TEST_F(Adoption, CarriesFieldsOfALaterVersionAlong) {
  job_.later["more"] = 5;
  job_.spec_later["limit"] = 6;
  write();
  start();
  EXPECT_EQ(read()->state.jobs.at(0).later.at("more"), 5);
  EXPECT_EQ(read()->state.jobs.at(0).spec_later.at("limit"), 6);
}

// Goal:   a crowd that waits for an engine is let in, however many of its questions a channel holds.
TEST_F(Adoption, AsksAgainWhereTheChannelIsFull) {
  job_.spec.world = 40;
  const int least = 1;
  ASSERT_EQ(setsockopt(kept_.at(channel_name(0x1f)).get(), SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
  write();
  start();
  std::vector<shm::Descriptor> clients;
  for (std::uint32_t rank = 0; rank < job_.spec.world; ++rank)
    clients.push_back(client(static_cast<int>(rank)));
  report();
  std::set<std::uint32_t> asked;
  while (asked.size() < clients.size() && !HasFailure())
    asked.insert(await_command("attach").body.at("rank").get<std::uint32_t>());
  for (const auto& socket : clients) {
    pollfd entry{socket.get(), POLLIN, 0};
    EXPECT_EQ(poll(&entry, 1, 0), 0) << "nobody was turned away";
  }
}

// Goal:   a client that gave up waiting neither takes the seat nor uses up the token of the one that came
// after.
TEST_F(Adoption, ForgetsWhoeverGaveUpWaiting) {
  job_.spec.claim = control::Claim::kToken;
  job_.tokens = {{0, 0, "token"}};
  write();
  start();
  client(0, "token").reset();
  const shm::Descriptor second = client(0, "token");
  report();
  const control::Packet attach = await_command("attach");
  ASSERT_EQ(attach.descriptors.size(), 2u);
  pollfd entry{attach.descriptors[0].get(), 0, 0};
  EXPECT_EQ(poll(&entry, 1, 0), 0) << "one that is there still";
  entry = {second.get(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 0), 0) << "and was not turned away";
}

// The manager has room for so many; one whose jobs are lost needs none of it.
TEST_F(Adoption, DoesNotKeepAnOwnerWithoutJobs) {
  auto [ours, theirs] = pair();
  kept_[owner_name(3)] = std::move(theirs);
  job_.owner = 3;
  write();
  kept_.erase(pidfd_name(0x1f));
  start();
  EXPECT_TRUE(read()->state.jobs.empty());
  EXPECT_FALSE(kept_.contains(owner_name(3)));
  EXPECT_FALSE(kept_.contains(channel_name(0x1f)));
}

TEST_F(Adoption, KeepsAnOwnerWithAJob) {
  auto [ours, theirs] = pair();
  kept_[owner_name(3)] = std::move(theirs);
  job_.owner = 3;
  write();
  start();
  EXPECT_TRUE(kept_.contains(owner_name(3)));
  ours.reset();
  while (daemon_->turn()) {
  }
  EXPECT_EQ(read()->state.jobs.at(0).ending, "whoever started the job has left");
  EXPECT_FALSE(kept_.contains(owner_name(3)));
}

}  // namespace
}  // namespace muster::supervisor
