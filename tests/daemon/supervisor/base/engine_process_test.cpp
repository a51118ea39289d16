#include "daemon/supervisor/base/engine_process.hpp"

#include "tests/support/folder.hpp"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;

// The datagram of an answer, as printf(1) writes it.
std::string printed(std::uint32_t serial, const Json& body) {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const shm::Descriptor ours(ends[0]), theirs(ends[1]);
  EXPECT_TRUE(control::send_packet(ours, shm::MessageKind::kReply, serial, body).ok());
  std::array<unsigned char, 4096> bytes;
  const ssize_t size = read(theirs.get(), bytes.data(), bytes.size());
  std::string text = "printf '";
  for (ssize_t i = 0; i < size; ++i) text += fmt::format("\\{:03o}", bytes[static_cast<std::size_t>(i)]);
  return text + "' >&3\n";
}

// Goal:   an engine that answers and dies is heard to the end.
// Method: a program that answers two questions and exits, all before the supervisor looks: death and answers
//         are found together.
TEST(EngineProcess, HearsTheAnswersOfAnEngineThatHasEnded) {
  const test::Folder folder;
  const Json reason = control::failed(Status(Code::kConfig, "the mesh is no mesh"));
  const std::string asked = folder.path() + "/asked";
  const std::string program =
      folder.write("engine", "#!/bin/sh\nuntil [ -e " + asked + " ]; do sleep 0.01; done\n" +
                                 printed(1, reason) + printed(2, reason) + "exit 1\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);

  control::Loop loop;
  std::string how;
  EngineProcess::Options options;
  options.program = program;
  options.on_event = [](const Json&) {};
  options.on_end = [&](const std::string& text) {
    how = text;
    loop.stop();
  };
  auto process = EngineProcess::spawn(loop, std::move(options));
  ASSERT_TRUE(process) << process.error().text();
  std::vector<std::string> errors;
  for (int i = 0; i < 3; ++i)
    (*process)->ask(Json{{"command", "create"}}, {}, [&](Result<Packet> answer) {
      const Status status = answer ? control::result_of(*answer).error() : answer.error();
      errors.push_back(status.message());
    });
  std::ofstream(asked) << "all";
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>((*process)->pid()), &ended, WEXITED | WNOWAIT), 0);
  loop.run();
  EXPECT_EQ(how, "it exited with code 1");
  ASSERT_EQ(errors.size(), 3u);
  EXPECT_EQ(errors[0], "the mesh is no mesh");
  EXPECT_EQ(errors[1], "the mesh is no mesh");
  EXPECT_NE(errors[2].find("it exited with code 1"), std::string::npos) << "never answered: " << errors[2];
}

// ---- a predecessor's engine

// A process that is nobody's child here, with the far end of its channel.
struct Stranger {
  pid_t pid = 0;
  shm::Descriptor pidfd, channel, theirs;
};

Stranger stranger() {
  Stranger made;
  int numbers[2], ends[2];
  EXPECT_EQ(pipe2(numbers, O_CLOEXEC), 0);
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  made.channel.reset(ends[0]);
  made.theirs.reset(ends[1]);
  const pid_t parent = fork();
  if (parent == 0) {
    const pid_t child = fork();
    if (child == 0)
      while (true) pause();
    _exit(write(numbers[1], &child, sizeof child) == sizeof child ? 0 : 1);
  }
  EXPECT_EQ(waitpid(parent, nullptr, 0), parent);
  EXPECT_EQ(read(numbers[0], &made.pid, sizeof made.pid), static_cast<ssize_t>(sizeof made.pid));
  close(numbers[0]);
  close(numbers[1]);
  made.pidfd.reset(static_cast<int>(syscall(SYS_pidfd_open, made.pid, 0)));
  EXPECT_TRUE(made.pidfd.valid());
  return made;
}

// Goal:   an adopted engine is heard, its answers to a predecessor are not, and its end is seen.
TEST(EngineProcess, TakesOverOneThatIsNoChild) {
  Stranger engine = stranger();
  control::Loop loop;
  std::vector<std::string> events, answers;
  std::string how;
  EngineProcess::Options options;
  options.first_serial = 1000;
  options.on_event = [&](const Json& event) { events.push_back(event.at("event")); };
  options.on_end = [&](const std::string& text) {
    how = text;
    loop.stop();
  };
  auto process = EngineProcess::adopt(loop, std::move(options), engine.pid, std::move(engine.channel),
                                      std::move(engine.pidfd));
  const auto say = [&](shm::MessageKind kind, std::uint32_t serial, const Json& body) {
    EXPECT_TRUE(control::send_packet(engine.theirs, kind, serial, body).ok());
  };
  say(shm::MessageKind::kCommand, 0, {{"event", "detached"}});
  say(shm::MessageKind::kReply, 1, control::success({{"to", "the predecessor"}}));
  process->ask(Json{{"command", "report"}}, {}, [&](const Result<Packet>& answer) {
    answers.push_back(answer ? answer->body.dump() : answer.error().message());
    process->kill();
  });
  const auto asked = control::receive_packet(engine.theirs);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->serial, 1001u);
  say(shm::MessageKind::kReply, 1001, control::success({{"to", "the successor"}}));
  loop.run();
  EXPECT_EQ(events, std::vector<std::string>{"detached"});
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_NE(answers[0].find("the successor"), std::string::npos) << answers[0];
  EXPECT_NE(how.find("not known"), std::string::npos) << how;
}

// A channel with nobody behind it, and what is no pidfd.
struct NoProcess {
  NoProcess() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    theirs.reset(ends[0]);
    EngineProcess::Options options;
    options.on_event = [](const Json&) {};
    options.on_end = [this](const std::string& text) { how = text; };
    process = EngineProcess::adopt(loop, std::move(options), 7, shm::Descriptor(ends[1]),
                                   shm::Descriptor(eventfd(0, EFD_CLOEXEC)));
  }
  control::Loop loop;
  shm::Descriptor theirs;
  std::string how;  // it ended
  std::unique_ptr<EngineProcess> process;
};

// Goal:   the engine of another user has none of root's groups, and no right that it could get back.
TEST(EngineProcess, GivesUpWhatRootHas) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  constexpr gid_t kOwn = 4711;
  const test::Folder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  const std::string program = folder.write("engine", "#!/bin/sh\nexec sleep 600\n");
  std::filesystem::permissions(program, std::filesystem::perms(0755));
  control::Loop loop;
  EngineProcess::Options options;
  options.program = program;
  options.user = {65534, 65534};
  options.on_event = [](const Json&) {};
  options.on_end = [](const std::string&) {};
  std::vector<gid_t> before(64);
  before.resize(static_cast<std::size_t>(getgroups(64, before.data())));
  ASSERT_EQ(setgroups(1, &kOwn), 0);
  const auto process = EngineProcess::spawn(loop, std::move(options));
  ASSERT_EQ(setgroups(before.size(), before.data()), 0);
  ASSERT_TRUE(process) << process.error().text();
  const auto status = [&] {
    std::ifstream file("/proc/" + std::to_string((*process)->pid()) + "/status");
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  std::string said = status();
  while (said.find("NoNewPrivs:\t1") == std::string::npos && !said.empty()) said = status();
  said = status();  // once more: the kernel may write the lines above NoNewPrivs before the engine changes
  EXPECT_NE(said.find("Uid:\t65534\t65534\t65534\t65534"), std::string::npos) << said;
  EXPECT_NE(said.find("Gid:\t65534\t65534\t65534\t65534"), std::string::npos) << said;
  EXPECT_NE(said.find("Groups:\t \n"), std::string::npos) << said;
  for (const char* set : {"CapEff", "CapPrm", "CapBnd"})
    EXPECT_NE(said.find(std::string(set) + ":\t0000000000000000"), std::string::npos)
        << set << " in " << said;
}

// Goal:   an engine that takes every question and answers none does not make its supervisor grow.
TEST(EngineProcess, OwesOnlySoManyAnswers) {
  NoProcess engine;
  const auto& process = engine.process;
  std::size_t answered = 0;
  Code last = Code::kOk;
  for (std::size_t i = 0; i <= EngineProcess::kQuestionsMax; ++i) {
    process->ask(Json{{"command", "report"}}, {}, [&](const Result<Packet>& answer) {
      ++answered;
      last = answer ? Code::kOk : answer.error().code();
    });
    EXPECT_TRUE(i == EngineProcess::kQuestionsMax || control::receive_packet(engine.theirs)) << i;
  }
  EXPECT_EQ(answered, 1u);
  EXPECT_EQ(last, Code::kBusy);
}

// Goal:   a kept descriptor with a pidfd's name that is no pidfd does not keep a job for ever that is to end.
TEST(EngineProcess, TakesWhatIsNoProcessForEndedOnceItIsToEnd) {
  NoProcess engine;
  engine.process->kill();
  engine.process->kill();
  EXPECT_EQ(engine.how, "") << "not while somebody ends it, who may hold on to it";
  while (engine.loop.turn()) {
  }
  EXPECT_NE(engine.how.find("not known"), std::string::npos) << engine.how;
}

// Goal:   nor does one whose engine has gone while nobody could see it.
TEST(EngineProcess, TakesWhatIsNoProcessForEndedWhenItsChannelIs) {
  NoProcess engine;
  engine.theirs.reset();
  while (engine.loop.turn()) {
  }
  EXPECT_NE(engine.how.find("not known"), std::string::npos) << engine.how;
}

}  // namespace
}  // namespace muster::supervisor
