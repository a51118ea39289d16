// A supervisor's start with the remains of its predecessor, before anything of its own has run.
#include "daemon/supervisor/program/supervisor.hpp"

#include "api/shm/endpoint.hpp"
#include "api/shm/message.hpp"
#include "daemon/supervisor/base/kept_names.hpp"

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

shm::Descriptor copy_of(const shm::Descriptor& descriptor) {
  return shm::Descriptor(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 3));
}

// The service manager's store for a daemon with one job, whose engine is this test.
class AdoptionTest : public ::testing::Test {
 protected:
  AdoptionTest() : file_(*StateFile::create()) {
    options_.engine_program = "/nonexistent";
    options_.random_hex = [this] { return std::to_string(++words_); };
    job_.spec.name = "job";
    job_.spec.mesh = "dp_shard=1";
    job_.spec.epoch = 0x1f;
    job_.spec.owner = geteuid();
    state_.instance = 1;
    make_engine();
  }
  void make_engine() {
    auto [ours, theirs] = pair();
    engine_ = std::move(ours);
    kept_[channel_name(0x1f)] = std::move(theirs);
    kept_[pidfd_name(0x1f)] = shm::Descriptor(eventfd(0, EFD_CLOEXEC));
  }
  void end_engine() {
    const std::uint64_t one = 1;
    ASSERT_EQ(::write(kept_.at(pidfd_name(0x1f)).get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
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
    Options options = options_;
    options.runtime_directory = directory();
    options.random_word = [this] { return ++words_; };
    options.notify = [this](const std::string& text, std::span<const int> descriptors) {
      const auto at = text.find("FDNAME=");
      if (at == std::string::npos) return true;
      const std::string name = text.substr(at + 7);
      if (descriptors.empty()) return kept_.erase(name), true;
      kept_[name] = shm::Descriptor(dup(descriptors[0]));
      return true;
    };
    std::vector<DescriptorStore::Inherited> inherited;
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
  void report(bool attached = false) {
    const control::Packet asked = await_command("report");
    control::Json ranks = control::Json::array();
    for (std::uint32_t rank = 0; rank < job_.spec.world.size(); ++rank)
      ranks.push_back({{"attached", attached}, {"pid", 0}, {"attachments", 0u}});
    ASSERT_TRUE(control::send_packet(engine_, shm::MessageKind::kReply, asked.serial,
                                     control::success({{"ranks", ranks}}))
                    .ok());
  }
  // A client that has said what it wants.
  shm::Descriptor say_hello(int rank, const std::string& token = "") const {
    auto hello = shm::make_message<shm::Hello>(shm::MessageKind::kHello, 1);
    EXPECT_TRUE(shm::set_text(hello.job, "job", "job").ok());
    EXPECT_TRUE(shm::set_text(hello.token, token, "token").ok());
    hello.rank = rank;
    hello.world_size = static_cast<std::int32_t>(job_.spec.world.size());
    auto socket = shm::connect_to(path(), clock_.now() + std::chrono::seconds(20), clock_);
    EXPECT_TRUE(socket);
    EXPECT_TRUE(shm::send_message(*socket, shm::bytes_of(hello)).ok());
    return *std::move(socket);
  }
  // The same, and the daemon has heard it.
  shm::Descriptor client(int rank, const std::string& token = "") {
    shm::Descriptor socket = say_hello(rank, token);
    while (daemon_->turn()) {
    }
    return socket;
  }
  static const std::string& directory() {
    static const std::string path = ::testing::TempDir() + fmt::format("/muster-adoption-{}", getpid());
    return path;  // also in a child
  }
  static std::string path() { return shm::ranks_socket(directory()); }
  // Why a client was turned away; kPending while it was not.
  Code refusal_on(const shm::Descriptor& socket) {
    while (daemon_->turn()) {
    }
    std::array<std::byte, sizeof(shm::Failure)> buffer;
    const auto message = shm::receive_message(socket, buffer);
    if (!message) return message.error().code();
    const auto welcome = shm::checked_answer<shm::Welcome>(std::span(buffer).first(message->bytes),
                                                           shm::MessageKind::kWelcome, 1);
    return welcome ? Code::kOk : welcome.error().code();
  }
  Result<Decoded> read() { return StateFile::adopt(copy_of(file_.descriptor()))->read(1); }

  // The answer to a command of a command line; kPending while there is none.
  Result<control::Json> answer_on(const shm::Descriptor& socket) {
    while (daemon_->turn()) {
    }
    MUSTER_ASSIGN_OR_RETURN(const auto answer, control::receive_packet(socket));
    return control::result_of(answer);
  }
  Result<control::Json> ask(const shm::Descriptor& socket, const control::Json& command) {
    MUSTER_RETURN_IF_ERROR(control::send_packet(socket, shm::MessageKind::kCommand, 1, command));
    return answer_on(socket);
  }
  shm::Descriptor connect() const {
    auto socket =
        shm::connect_to(shm::control_socket(directory()), clock_.now() + std::chrono::seconds(20), clock_);
    EXPECT_TRUE(socket);
    return *std::move(socket);
  }
  // Whatever the predecessor had still to say: the channel takes nothing more.
  void fill_channel() {
    const shm::Descriptor& channel = kept_.at(channel_name(0x1f));
    while (shm::send_message(channel, std::as_bytes(std::span("more"))).ok()) {
    }
  }
  // The daemon runs for so long.
  void let_run(Nanos time) {
    for (const Instant end = clock_.now() + time; clock_.now() < end; usleep(1000))
      while (daemon_->turn()) {
      }
  }

  SteadyClock clock_;
  Options options_;
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
TEST_F(AdoptionTest, EndsWhatWasToEndAlsoAfterATornWrite) {
  job_.ending = "its owner has left";
  write();
  start();
  const auto last = read();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->state.jobs.at(0).ending, "its owner has left");
  const char spoilt = 'x';
  const auto offset = static_cast<off_t>((last->sequence % 2) * kStateBytesMax);
  ASSERT_EQ(pwrite(file_.descriptor().get(), &spoilt, 1, offset + sizeof(State::Header)), 1);
  const auto before = read();
  ASSERT_TRUE(before);
  EXPECT_EQ(before->sequence, last->sequence - 1);
  EXPECT_EQ(before->state.jobs.at(0).ending, "its owner has left");
}

// 0 says that a job has no owner; a descriptor of that number is nobody's.
TEST_F(AdoptionTest, TakesNoConnectionForTheOwnerOfAJobWithoutOne) {
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

// Found by tests/fuzz/state.cpp: what is always readable was read for ever.
TEST_F(AdoptionTest, TakesOnlyAConnectionForAChannel) {
  const shm::Descriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(listen(listener.get(), 1), -1) << "it has no name yet";
  const sockaddr_un unnamed{AF_UNIX, {}};
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&unnamed), sizeof(sa_family_t)), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  for (const int what : {open("/dev/null", O_RDWR | O_CLOEXEC), eventfd(1, EFD_CLOEXEC),
                         socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), dup(listener.get())}) {
    SCOPED_TRACE(what);
    kept_[channel_name(0x1f)] = shm::Descriptor(what);
    kept_[pidfd_name(0x1f)] = shm::Descriptor(eventfd(0, EFD_CLOEXEC));
    write();
    start();
    int turns = 0;
    while (daemon_->turn() && turns < 1000) ++turns;
    EXPECT_LT(turns, 1000) << "it comes to rest";
    EXPECT_TRUE(read()->state.jobs.empty());
    EXPECT_FALSE(kept_.contains(channel_name(0x1f)));
    EXPECT_FALSE(kept_.contains(pidfd_name(0x1f)));
    daemon_.reset();
  }
}

TEST_F(AdoptionTest, CarriesFieldsOfALaterVersionAlong) {
  job_.later["more"] = 5;
  job_.spec_later["limit"] = 6;
  write();
  start();
  EXPECT_EQ(read()->state.jobs.at(0).later.at("more"), 5);
  EXPECT_EQ(read()->state.jobs.at(0).spec_later.at("limit"), 6);
}

// Goal:   an engine hears who takes over, and who only looks.
TEST_F(AdoptionTest, DoesNotTakeOverToLook) {
  write();
  start();
  EXPECT_TRUE(await_command("report").body.value("takes_over", false));
  const shm::Descriptor socket = connect();
  ASSERT_TRUE(control::send_packet(socket, shm::MessageKind::kCommand, 1, {{"command", "jobs"}}).ok());
  EXPECT_FALSE(await_command("report").body.contains("takes_over"));
}

// Goal:   a crowd that waits for an engine is let in, however many of its questions a channel holds.
TEST_F(AdoptionTest, AsksAgainWhereTheChannelIsFull) {
  job_.spec.world = 40;
  const int least = 1;
  ASSERT_EQ(setsockopt(kept_.at(channel_name(0x1f)).get(), SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
  write();
  start();
  std::vector<shm::Descriptor> clients;
  for (std::uint32_t rank = 0; rank < job_.spec.world.size(); ++rank)
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

// Goal:   a client that gave up waiting neither holds the rank nor uses up the token of its successor.
TEST_F(AdoptionTest, ForgetsWhoeverGaveUpWaiting) {
  job_.spec.claim = control::ClaimRule::kToken;
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

// Goal:   an end on purpose is reported as that, and a loss as a loss, also where the engine dies before it
//         tells which.
// Input:  a rank that waits for the engine's report, for its attachment, or for room in the channel.
TEST_F(AdoptionTest, TellsAnEndFromALossToARankThatWaits) {
  enum class Waits { kForTheReport, kForItsAttachment, kForRoom };
  for (const Waits waits : {Waits::kForTheReport, Waits::kForItsAttachment, Waits::kForRoom})
    for (const bool ended : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, ended: {}", static_cast<int>(waits), ended));
      file_ = *StateFile::create();
      make_engine();
      write();
      start();
      if (waits != Waits::kForTheReport) report();
      let_run(std::chrono::milliseconds(1));
      if (waits == Waits::kForRoom) fill_channel();
      const shm::Descriptor rank = client(0);
      if (waits == Waits::kForItsAttachment) await_command("attach");
      if (ended) {
        EXPECT_TRUE(ask(connect(), {{"command", "job_destroy"}, {"job", "job"}}));
      }
      Code told = refusal_on(rank);
      EXPECT_EQ(told != Code::kPending, ended && waits != Waits::kForItsAttachment)
          << "nobody else may answer";
      end_engine();
      if (told == Code::kPending) told = refusal_on(rank);
      EXPECT_EQ(told, ended ? Code::kJobEnded : Code::kDaemonLost);
      daemon_.reset();
    }
}

// Goal:   a command that a draining daemon does not take any more is refused as that, and its jobs go on.
TEST_F(AdoptionTest, BeginsNothingAnewWhileItDrains) {
  options_.program = "/bin/true";
  write();
  start();
  report(true);
  let_run(std::chrono::milliseconds(1));
  const shm::Descriptor socket = connect();
  EXPECT_TRUE(ask(socket, {{"command", "shutdown"}, {"drain", true}}));
  const control::Json spec{{"name", "another"}, {"world", 1}, {"mesh", "dp_shard=1"}};
  for (const control::Json& begun : {control::Json{{"command", "job_create"}, {"spec", spec}},
                                     control::Json{{"command", "upgrade"}, {"program", ""}}}) {
    const auto refused = ask(socket, begun);
    ASSERT_FALSE(refused) << begun;
    EXPECT_EQ(refused.error().code(), Code::kState) << refused.error().text();
    EXPECT_NE(refused.error().message().find("shutting down"), std::string::npos);
  }
  EXPECT_EQ(refusal_on(client(0)), Code::kJobEnded);
  EXPECT_EQ(ask(socket, {{"command", "status"}})->at("sessions"), 1);
}

// The manager has room for so many; one whose jobs are lost needs none of it.
TEST_F(AdoptionTest, DoesNotKeepAnOwnerWithoutJobs) {
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

TEST_F(AdoptionTest, KeepsAnOwnerWithAJob) {
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

// Goal:   questions that wait for an engine are bounded, whether one connection asks or several in turn.
TEST_F(AdoptionTest, LetsOnlySoManyQuestionsWait) {
  write();
  start();
  const control::Json token{{"command", "token"}, {"job", "job"}, {"rank", 0}};
  const shm::Descriptor first = connect();
  for (std::size_t i = 0; i < Connections::kQuestionsMax; ++i)
    EXPECT_EQ(ask(first, token).error().code(), Code::kPending) << i;
  for (const auto& refused : {ask(first, token), ask(connect(), token)}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kBusy);
    EXPECT_NE(refused.error().message().find("wait for"), std::string::npos) << refused.error().message();
  }
  report();
  for (std::size_t i = 0; i < Connections::kQuestionsMax; ++i) EXPECT_TRUE(answer_on(first)) << i;
  EXPECT_TRUE(ask(first, token)) << "and it may ask again";
}

// Goal:   a wrong rank is its asker's fault: it is told so at once, and the engine lives.
TEST_F(AdoptionTest, RefusesARankThatIsNoneBeforeItWaits) {
  write();
  start();
  const shm::Descriptor socket = connect();
  for (const control::Json& rank : {control::Json("\xff\xfe"), control::Json(7), control::Json(nullptr)}) {
    const auto refused = ask(socket, {{"command", "token"}, {"job", "job"}, {"rank", rank}});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kBadArgument);
  }
  report();
  EXPECT_TRUE(ask(socket, {{"command", "token"}, {"job", "job"}, {"rank", 0}}));
}

// Goal:   an engine that was busy just then is told all the same, and not killed unheard.
TEST_F(AdoptionTest, TellsAnEngineToStopAlsoWhereItsChannelWasFull) {
  job_.ending = "its owner has left";
  write();
  fill_channel();
  start();
  EXPECT_EQ(await_command("stop").body.at("text"), "its owner has left");
}

TEST_F(AdoptionTest, TellsAStrangerToStopAlsoWhereItsChannelWasFull) {
  fill_channel();
  start();
  EXPECT_EQ(await_command("stop").body.at("status"), MUSTER_ERR_DAEMON_LOST);
}

// Goal:   a question for one engine does not reach that of the next job by its name.
// Method: the engine's channel is full, so that its report is to be asked for again; it ends, and a rank
//         makes a job of that name, whose engine writes down what it hears.
TEST_F(AdoptionTest, AsksNoSuccessorOfAnEngineForItsReport) {
  const std::string heard = path() + ".heard";
  const std::string program = path() + ".engine";
  std::ofstream(program) << "#!/bin/sh\nwhile :; do dd bs=65536 count=1 <&3 >>" << heard
                         << " 2>/dev/null || sleep 0.01; done\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  options_.engine_program = program;
  options_.job_defaults.owner = geteuid();
  write();
  fill_channel();
  start();
  end_engine();
  while (daemon_->turn()) {
  }
  const shm::Descriptor socket = client(0);
  std::string text;
  for (const Instant end = clock_.now() + std::chrono::seconds(20);
       text.find("create") == std::string::npos && clock_.now() < end;) {
    let_run(std::chrono::milliseconds(60));
    std::ostringstream all;
    all << std::ifstream(heard).rdbuf();
    text = all.str();
  }
  EXPECT_NE(text.find("create"), std::string::npos);
  EXPECT_EQ(text.find("\x66report"), std::string::npos) << "as CBOR: the specification has a longer word";
  daemon_.reset();
  for (const std::string& file : {heard, program}) std::filesystem::remove(file);
}

// Goal:   a takeover is over too where its last engine ends instead of speaking.
TEST_F(AdoptionTest, IsConcludedByADeathToo) {
  write();
  start();
  const shm::Descriptor socket = connect();
  EXPECT_EQ(ask(socket, {{"command", "status"}})->at("takeover_ns"), 0);
  end_engine();
  while (daemon_->turn()) {
  }
  EXPECT_GT(ask(socket, {{"command", "status"}})->at("takeover_ns"), 0);
}

TEST_F(AdoptionTest, IsConcludedByAReportThatIsNoneToo) {
  write();
  start();
  const control::Packet asked = await_command("report");
  ASSERT_TRUE(control::send_packet(engine_, shm::MessageKind::kReply, asked.serial,
                                   control::success({{"ranks", control::Json::array()}}))
                  .ok());
  EXPECT_EQ(await_command("stop").body.value("command", ""), "stop");
  EXPECT_GT(ask(connect(), {{"command", "status"}})->at("takeover_ns"), 0);
}

// Goal:   counters that an engine could not give just then are asked for again.
TEST_F(AdoptionTest, AsksForCountersUntilItHasThem) {
  write();
  start();
  report();
  const auto refused = failure(Code::kNoResource, "no descriptor is free");
  const shm::Descriptor socket = connect();
  const control::Json question{{"command", "counters"}, {"job", "job"}};
  ASSERT_TRUE(control::send_packet(engine_, shm::MessageKind::kReply, await_command("counters").serial,
                                   control::failed(refused))
                  .ok());
  EXPECT_EQ(ask(socket, question).error().code(), Code::kState);
  const int descriptor = file_.descriptor().get();
  ASSERT_TRUE(control::send_packet(engine_, shm::MessageKind::kReply, await_command("counters").serial,
                                   control::success(control::Json::object()), std::span(&descriptor, 1))
                  .ok());
  EXPECT_TRUE(ask(socket, question));
  EXPECT_TRUE(kept_.contains(counters_name(0x1f)));
}

// Goal:   settings of the directory that have changed since its predecessor made it count.
TEST_F(AdoptionTest, GivesTheDirectoryThatItTakesOverItsModeAndGroup) {
  auto place = RuntimeDirectory::make(directory(), {0700, std::nullopt}, 1);
  ASSERT_TRUE(place) << place.error().text();
  const auto listening = ListenSocket::open(path(), {0666, std::nullopt, std::nullopt}, {&place->ranks(), 1});
  ASSERT_TRUE(listening) << listening.error().text();
  kept_[listening->name()] = copy_of(listening->descriptor());
  kept_[place->name()] = copy_of(place->lock());
  options_.directory_mode = 0755;
  options_.directory_gid = geteuid() == 0 ? 4711 : getegid();
  start();
  struct stat facts {};
  ASSERT_EQ(stat(directory().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0755u);
  EXPECT_EQ(facts.st_gid, *options_.directory_gid);
  EXPECT_TRUE(kept_.contains(listening->name()) && kept_.contains(place->name())) << "the same ones";
}

// Goal:   the memory of a user's jobs counts after a restart too; its page stays as long as it has jobs.
// Method: a user's page with a job that holds something, and one of a user without jobs.
TEST_F(AdoptionTest, FindsTheMemoryOfItsJobsAgain) {
  job_.spec.owner = 65534;
  write();
  auto page = shm::MemoryPage::create(65534, 0, geteuid(), shm::memory_headroom());
  ASSERT_TRUE(page && page->give(0x1f));
  const auto mapping =
      shm::Mapping::map(page->descriptor(), shm::kMemoryPageBytes, shm::Mapping::Access::kReadWrite);
  reinterpret_cast<shm::MemoryPage::Slot*>(mapping->writable() + shm::kMemorySlotsOffset)->bytes = 4711;
  kept_[memory_name(65534)] = copy_of(page->descriptor());
  kept_[memory_name(65533)] = copy_of(page->descriptor());
  options_.memory_max = 100'000;
  start();
  EXPECT_FALSE(kept_.contains(memory_name(65533))) << "nobody's";
  report();
  const auto socket = connect();
  const auto status = ask(socket, {{"command", "status"}});
  ASSERT_TRUE(status) << status.error().text();
  EXPECT_EQ(status->at("memory_bytes"), 4711);
  const auto* limits =
      reinterpret_cast<const shm::MemoryPage::Limits*>(mapping->data() + shm::kMemoryLimitsOffset);
  EXPECT_EQ(limits->limit, 43'750u) << "half of what is not reserved";
  EXPECT_TRUE(kept_.contains(memory_name(65534)));
  end_engine();
  for (const Instant end = clock_.now() + std::chrono::seconds(20);
       kept_.contains(memory_name(65534)) && clock_.now() < end; usleep(1000))
    while (daemon_->turn()) {
    }
  EXPECT_FALSE(kept_.contains(memory_name(65534)));
  const auto after = ask(socket, {{"command", "status"}});
  ASSERT_TRUE(after) << after.error().text();
  EXPECT_EQ(after->at("memory_bytes"), 0);
}

// Goal:   a job goes on where its user's page was lost or is none, and is not counted.
TEST_F(AdoptionTest, GoesOnWithoutAMemoryPage) {
  write();
  kept_[memory_name(geteuid())] = shm::Descriptor(memfd_create("other", MFD_CLOEXEC));
  start();
  report();
  EXPECT_FALSE(kept_.contains(memory_name(geteuid())));
  const auto status = ask(connect(), {{"command", "status"}});
  ASSERT_TRUE(status) << status.error().text();
  EXPECT_EQ(status->at("jobs").at(0).at("state"), "ready");
  EXPECT_EQ(status->at("memory_bytes"), 0);
}

// Goal:   ranks of one user who wait for their ranks to be free leave room for those of others.
// Method: a child that is another user sends more claims to a held rank than may wait in all.
TEST_F(AdoptionTest, TriesTheClaimsOfEachUserAgain) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  options_.directory_mode = 0755;
  job_.spec.owner = 65534;  // root may act on it too
  write();
  start();
  report(true);
  let_run(std::chrono::milliseconds(5));
  auto [ours, theirs] = pair();
  const pid_t crowd = fork();
  if (crowd == 0) {
    ours.reset();
    if (setgroups(0, nullptr) != 0 || setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
    std::vector<shm::Descriptor> sockets;
    for (std::size_t i = 0; i < Retries::kLimits.all + 8; ++i) sockets.push_back(say_hello(0));
    if (HasFailure() || ::write(theirs.get(), "x", 1) != 1) _exit(2);
    pollfd left{theirs.get(), 0, 0};
    _exit(poll(&left, 1, 20'000) == 1 ? 0 : 3);
  }
  theirs.reset();
  pollfd all_there{ours.get(), POLLIN, 0};
  while (poll(&all_there, 1, 0) == 0) daemon_->turn();
  let_run(std::chrono::milliseconds(1));  // so that none is left in the queue
  const shm::Descriptor socket = client(0);
  pollfd entry{socket.get(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 0), 0) << "it was not turned away";
  ours.reset();
  int status = 0;
  waitpid(crowd, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace muster::supervisor
