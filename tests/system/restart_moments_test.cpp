// The awkward moments: the state that a supervisor finds after it was killed or replaced at such a moment.
#include "api/shm/endpoint.hpp"
#include "tests/system/restart_fixture.hpp"

#include <sys/mman.h>

namespace muster::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RestartMoments : public RestartTest {
 protected:
  void restart() {
    steward().end(SIGKILL);
    steward().start(kThis);
  }
  muster_session* attached(const char* job, int rank = 0, int world = 1) {
    muster_session* session = nullptr;
    EXPECT_EQ(open(job, rank, world, &session), MUSTER_OK) << muster_last_error();
    return session;
  }
  pid_t engine_of(const std::string& name) { return job(name).at("engine_pid").get<pid_t>(); }
  Json closed_job(bool keep = true) const {
    return {{"command", "job_create"},
            {"spec", {{"name", "closed"}, {"world", 1}, {"mesh", "dp_shard=1"}, {"claim", "token"}}},
            {"keep", keep}};
  }
  // The status of calls that the engine answers.
  static muster_status_t works(muster_session* session) {
    muster_group group = 0;
    const muster_status_t status = muster_mesh_group(session, "world", &group);
    if (status != MUSTER_OK) return status;
    muster_buffer buffer = 0;
    void* address = nullptr;
    return muster_buffer_alloc(session, 4096, &buffer, &address);
  }
  // A program in place of musterd.
  std::string script(const std::string& text) const {
    const std::string path = folder_.write("program", "#!/bin/sh\n" + text);
    chmod(path.c_str(), 0755);
    return path;
  }
  void await_no_job(const char* name) {
    EXPECT_TRUE(within(std::chrono::seconds(20), [&] { return job(name).is_null(); })) << status();
  }
};

// Goal:   an attach that the former supervisor began and did not live to hear of counts once.
// Method: the engine is stopped, so that "attach" lies in its channel while the supervisor is killed.
TEST_F(RestartMoments, BetweenAttachAndItsAnswer) {
  begin(kThis);
  const auto token = ask(closed_job()).at("tokens").at(0).get<std::string>();
  const pid_t engine = engine_of("closed");
  kill(engine, SIGSTOP);
  muster_session* session = nullptr;
  muster_status_t opened = MUSTER_ERR_INTERNAL;
  std::thread client([&] { opened = open("closed", 0, 1, &session, token); });
  EXPECT_TRUE(within(std::chrono::seconds(10), [&] { return job("closed").at("attached") == 1; }))
      << "claimed";
  restart();
  // And once more while the takeover waits for the engine.
  EXPECT_TRUE(within(std::chrono::seconds(10), [&] { return job("closed").at("state") == "adopting"; }));
  restart();
  kill(engine, SIGCONT);
  client.join();
  ASSERT_EQ(opened, MUSTER_OK) << muster_last_error() << steward().log();
  EXPECT_TRUE(await_ranks("closed", 1)) << status();
  EXPECT_EQ(works(session), MUSTER_OK) << muster_last_error();
  muster_close(session);
  session = nullptr;
  EXPECT_EQ(open("closed", 0, 1, &session, token), MUSTER_ERR_DENIED) << "the token is spent";
  muster_close(session);
}

// Goal:   a token that was used while no supervisor looked is spent.
// Method: as above, but the client has left again before the next supervisor starts.
TEST_F(RestartMoments, ATokenThatWasUsedUnseenIsSpent) {
  begin(kThis);
  const auto token = ask(closed_job()).at("tokens").at(0).get<std::string>();
  const pid_t engine = engine_of("closed");
  kill(engine, SIGSTOP);
  muster_session* session = nullptr;
  std::thread client([&] {
    EXPECT_EQ(open("closed", 0, 1, &session, token), MUSTER_OK) << muster_last_error();
    muster_close(session);
  });
  EXPECT_TRUE(within(std::chrono::seconds(10), [&] { return job("closed").at("attached") == 1; }));
  steward().end(SIGKILL);
  kill(engine, SIGCONT);
  client.join();
  steward().start(kThis);
  EXPECT_TRUE(await_ranks("closed", 0)) << status();
  muster_session* second = nullptr;
  EXPECT_EQ(open("closed", 0, 1, &second, token), MUSTER_ERR_DENIED);
  muster_close(second);
}

// Goal:   a claim on a job that is still starting is lost with its supervisor; its client comes again.
// Method: an engine that takes its time to start.
TEST_F(RestartMoments, BetweenClaimAndAttach) {
  engine_ = script("sleep 0.4\nexec " MUSTER_PROGRAMS "/muster-engine\n");
  steward_ = std::make_unique<Steward>(
      folder_.path(),
      std::vector<std::string>{"--transient", "--directory", directory(), "--engine", engine_},
      std::vector<std::string>{});
  begin(kThis);
  muster_session* session = nullptr;
  muster_status_t opened = MUSTER_ERR_INTERNAL;
  std::thread client([&] { opened = open("slow", 0, 1, &session); });
  EXPECT_TRUE(within(std::chrono::seconds(10), [&] { return job("slow").is_object(); }));
  restart();
  client.join();
  ASSERT_EQ(opened, MUSTER_OK) << muster_last_error() << steward().log();
  EXPECT_TRUE(await_ranks("slow", 1)) << status();
  EXPECT_EQ(steward().kept_with("counters-").size(), 1u) << "asked for again";
  EXPECT_EQ(muster_close(session), MUSTER_OK);
  EXPECT_EQ(cli::ask(door(), {{"command", "counters"}, {"job", "slow"}})->descriptors.size(), 1u);
}

TEST_F(RestartMoments, AnEngineThatDiedMeanwhileIsGone) {
  begin(kThis);
  muster_session* session = attached("train");
  const pid_t engine = engine_of("train");
  steward().end(SIGKILL);
  kill(engine, SIGKILL);
  steward().start(kThis);
  await_no_job("train");
  EXPECT_THAT(steward().log(), HasSubstr("which has taken it over"));
  EXPECT_THAT(steward().kept_with("channel-"), IsEmpty());
  EXPECT_THAT(steward().kept_with("pidfd-"), IsEmpty());
  EXPECT_EQ(works(session), MUSTER_ERR_DAEMON_LOST);
  muster_close(session);
  muster_close(attached("train"));
}

TEST_F(RestartMoments, AnOwnerThatLeftMeanwhileTakesItsJobAlong) {
  begin(kThis);
  const SteadyClock clock;
  auto owner = shm::connect_to(socket(), clock.now() + std::chrono::seconds(20), clock);
  ASSERT_TRUE(owner);
  ASSERT_TRUE(control::send_packet(*owner, shm::MessageKind::kCommand, 1, closed_job(false)).ok());
  ASSERT_TRUE(control::receive_packet(*owner, clock.now() + std::chrono::seconds(20), clock));
  EXPECT_EQ(steward().kept_with("owner-").size(), 1u);
  restart();
  EXPECT_TRUE(await_ranks("closed", 0)) << "it stays as long as its owner: " << status();
  steward().end(SIGKILL);
  owner->reset();
  steward().start(kThis);
  await_no_job("closed");
  EXPECT_THAT(steward().kept_with("owner-"), IsEmpty());
}

// The same of one whose process is gone, so that nobody can be asked who it was.
TEST_F(RestartMoments, AnOwnerThatDiedMeanwhileTakesItsJobAlong) {
  begin(kThis);
  Running run({{program("muster"), "run", "-n", "1", "--endpoint", socket(), "--", MUSTER_RANK_PROGRAM,
                folder_.path() + "/stop"},
               {},
               {}});
  const std::string name = run_job_of(run.pid());
  ASSERT_TRUE(await_ranks(name, 1)) << run.err();
  steward().end(SIGKILL);
  run.signal(SIGKILL);
  run.wait();
  steward().start(kThis);
  await_no_job(name.c_str());
  EXPECT_THAT(steward().kept_with("owner-"), IsEmpty());
}

// Goal:   a job that a supervisor wrote down and was killed before it could tell the engine is made by the
//         next.
// Method: an engine whose first message is lost before it is an engine, in place of one that never got it.
TEST_F(RestartMoments, MakesAJobThatItsPredecessorOnlyBegan) {
  const std::string loses_a_message = script(
      "exec /usr/bin/python3 -c 'import os, select, socket\n"
      "channel = socket.socket(fileno=3)\n"
      "select.select([channel], [], [])\n"
      "channel.recv(1 << 20)\n"
      "channel.detach()\n"
      "os.execv(\"" +
      engine_ + "\", [\"muster-engine\"])'\n");
  start_over_with(loses_a_message);
  begin(kThis);
  const Start start{{program("muster"), "run", "-n", "2", "--endpoint", socket(), "--timeout", "60", "--",
                     MUSTER_RANK_PROGRAM, folder_.path() + "/stop"},
                    {},
                    {}};
  Running run(start);
  const std::string name = run_job_of(run.pid());
  const pid_t engine = engine_of(name);
  EXPECT_TRUE(within(std::chrono::seconds(20), [&] {
    std::string comm;
    std::getline(std::ifstream(fmt::format("/proc/{}/comm", engine)), comm);
    return comm == "muster-engine";
  })) << "the message is not lost";
  restart();
  EXPECT_TRUE(await_ranks(name, 2)) << run.err() << steward().log();
  EXPECT_EQ(engine_of(name), engine);
  folder_.write("stop", "");
  EXPECT_EQ(run.wait().code, 0) << run.err();
}

TEST_F(RestartMoments, GoesToTheNextStateAndBack) {
  begin(kThis);
  muster_session* session = attached("train");
  EXPECT_EQ(upgrade(kNext), "");
  EXPECT_TRUE(await_ranks("train", 1));
  EXPECT_EQ(status().at("state").at("version"), 2);
  restart();
  EXPECT_TRUE(await_ranks("train", 1));
  const Json back = status().at("state");
  EXPECT_EQ(back.at("version"), 1);
  EXPECT_EQ(back.at("read"), 2);
  EXPECT_THAT(back.dump(), HasSubstr("of_the_next_release")) << "carried along unread";
  EXPECT_EQ(upgrade(kNext), "");
  EXPECT_TRUE(await_ranks("train", 1));
  EXPECT_THAT(status().at("state").dump(), HasSubstr("of_the_next_release"));
  EXPECT_EQ(works(session), MUSTER_OK);
  EXPECT_EQ(muster_close(session), MUSTER_OK);
}

// Goal:   a state that is for later readers only is not read in part: its jobs end with the reason.
TEST_F(RestartMoments, RefusesAStateThatIsForLaterReaders) {
  steward().set("MUSTER_TEST_OLDEST_READER=3");
  begin(kNext);
  const std::uint64_t epoch = status().at("epoch").get<std::uint64_t>();
  muster_session* session = attached("train");
  const pid_t engine = engine_of("train");
  EXPECT_THAT(upgrade(kThis), HasSubstr("for readers from version 3 on; this daemon reads version 1"));
  EXPECT_EQ(status().at("state").at("version"), 2) << "nothing has changed";
  EXPECT_EQ(works(session), MUSTER_OK);
  restart();
  EXPECT_NE(status().at("epoch").get<std::uint64_t>(), epoch);
  EXPECT_THAT(status().at("jobs"), IsEmpty());
  EXPECT_TRUE(within(std::chrono::seconds(20), [&] { return works(session) == MUSTER_ERR_DAEMON_LOST; }));
  EXPECT_TRUE(within(std::chrono::seconds(20), [&] { return waitpid(engine, nullptr, WNOHANG) == engine; }));
  muster_close(session);
  EXPECT_THAT(steward().log(), HasSubstr("cannot read its predecessor's state"));
  muster_close(attached("train"));
  EXPECT_EQ(steward().kept().size(), 6u + 3u);
}

// Goal:   a program whose messages engines do not understand takes no job over: asked before, it is refused;
//         if it is simply started, the jobs end with the reason, and nobody waits for their engines' word.
TEST_F(RestartMoments, AProgramOfAnotherProtocolTakesNoJobOver) {
  steward().set("MUSTER_TEST_PROTOCOL=4711");
  begin(kThis);
  muster_session* session = attached("train");
  const pid_t engine = engine_of("train");
  EXPECT_THAT(upgrade(kNext), HasSubstr("this program version 4711"));
  EXPECT_EQ(status().at("instance"), 1) << "nothing has changed";
  EXPECT_EQ(works(session), MUSTER_OK);
  steward().end(SIGKILL);
  steward().start(kNext);
  EXPECT_THAT(status().at("jobs"), IsEmpty());
  EXPECT_TRUE(within(std::chrono::seconds(20), [&] { return works(session) == MUSTER_ERR_DAEMON_LOST; }));
  EXPECT_TRUE(within(std::chrono::seconds(20), [&] { return waitpid(engine, nullptr, WNOHANG) == engine; }));
  muster_close(session);
  EXPECT_THAT(steward().log(), HasSubstr("cannot take its predecessor's jobs over"));
  muster_close(attached("train"));
}

TEST_F(RestartMoments, BeginsAnewWithoutAStateThatIsWhole) {
  begin(kThis);
  for (const char* contents : {"", "no state at all"}) {
    SCOPED_TRACE(contents);
    muster_session* session = attached("train");
    const pid_t engine = engine_of("train");
    steward().end(SIGKILL);
    steward().lose("state");
    shm::Descriptor memory(memfd_create("muster-state", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_GE(write(memory.get(), contents, strlen(contents)), 0);
    if (*contents != '\0') steward().give("state", std::move(memory));
    steward().start(kThis);
    EXPECT_TRUE(within(std::chrono::seconds(20), [&] { return works(session) == MUSTER_ERR_DAEMON_LOST; }));
    EXPECT_TRUE(
        within(std::chrono::seconds(20), [&] { return waitpid(engine, nullptr, WNOHANG) == engine; }));
    muster_close(session);
    EXPECT_TRUE(within(std::chrono::seconds(20), [&] { return steward().kept().size() == 5; }));
  }
}

// Goal:   a job of which a part was not kept is ended too, not forgotten.
TEST_F(RestartMoments, EndsAnEngineWhoseChannelWasNotKept) {
  begin(kThis);
  muster_close(attached("train"));
  const pid_t engine = engine_of("train");
  steward().end(SIGKILL);
  steward().lose(steward().kept_with("channel-").at(0));
  steward().start(kThis);
  EXPECT_THAT(status().at("jobs"), IsEmpty());
  EXPECT_TRUE(within(std::chrono::seconds(20), [&] { return waitpid(engine, nullptr, WNOHANG) == engine; }));
  EXPECT_THAT(steward().kept_with("pidfd-"), IsEmpty());
}

// Goal:   a job that its first rank made ends after its last one, whichever supervisor looks by then.
// Method: one restart while the rank is there, one when it has left while nobody looked, beside a job that
//         stays.
TEST_F(RestartMoments, AMadeJobStillEndsAfterItsLastRank) {
  steward().set("MUSTER_SET_limits__made_job_linger=0s");
  begin(kThis);
  ask(closed_job());
  muster_session* session = attached("made");
  muster_session* unseen = attached("unseen");
  restart();
  EXPECT_TRUE(await_ranks("made", 1)) << status();
  EXPECT_EQ(muster_close(session), MUSTER_OK);
  await_no_job("made");
  steward().end(SIGKILL);
  EXPECT_EQ(muster_close(unseen), MUSTER_OK);
  steward().start(kThis);
  await_no_job("unseen");
  EXPECT_TRUE(await_ranks("closed", 0)) << "who was asked for stays: " << status();
}

TEST_F(RestartMoments, AnUpgradeThatCannotBeChangesNothing) {
  begin(kThis);
  muster_session* session = attached("train");
  const Json before = status();
  EXPECT_THAT(upgrade(folder_.path() + "/nothing"), HasSubstr("cannot be run"));
  EXPECT_THAT(upgrade("/bin/false"), HasSubstr("exited with code 1"));
  EXPECT_THAT(upgrade(script("echo I am none of yours >&2; exit 3\n")), HasSubstr("I am none of yours"));
  for (const std::string silent : {"/bin/true", "/bin/echo"})
    EXPECT_THAT(upgrade(silent), HasSubstr("it is no musterd")) << "an exit code of 0 is no answer";
  // It answers as a musterd, and its interpreter is gone when its turn comes.
  const std::string shell = folder_.path() + "/shell";
  std::filesystem::create_symlink("/bin/sh", shell);
  const std::string mayfly =
      folder_.write("mayfly", "#!" + shell + "\nrm " + shell + "; exec " + kThis + " \"$@\"\n");
  chmod(mayfly.c_str(), 0755);
  EXPECT_THAT(upgrade(mayfly), HasSubstr("this daemon goes on"));
  // Limits and settings that have changed since the start: good to read, and no daemon starts with them.
  EXPECT_THAT(upgrade(script("ulimit -n 1000\nexec " + kThis + " \"$@\"\n")),
              HasSubstr("the open-files limit is 1000"));
  const auto listening_at = [&](const std::string& path) {
    return script("shift 3\nexec " + kThis + " --transient --directory " + path + " \"$@\"\n");
  };
  EXPECT_THAT(upgrade(listening_at("/nowhere/at/all")), HasSubstr("/nowhere/at/all"));
  EXPECT_THAT(upgrade(listening_at(folder_.path() + "/log")), HasSubstr("/log"));
  const Json after = status();
  EXPECT_EQ(after.at("instance"), before.at("instance"));
  EXPECT_TRUE(has_ranks(after, "train", 1));
  EXPECT_EQ(works(session), MUSTER_OK);
  EXPECT_EQ(muster_close(session), MUSTER_OK);
  EXPECT_TRUE(await_ranks("train", 0)) << "it still hears its engine";
  EXPECT_EQ(steward().end(SIGTERM), 0);
}

TEST_F(RestartMoments, UpgradesWithoutAStewardByCommandAndBySignal) {
  Daemon daemon;
  const std::string endpoint = daemon.socket();
  const auto ask_it = [&] { return muster({"status", "--endpoint", endpoint, "--json"}).json(); };
  const Running run({{program("muster"), "run", "-n", "2", "--endpoint", endpoint, "--", MUSTER_RANK_PROGRAM,
                      folder_.path() + "/stop"},
                     {},
                     {}});
  ASSERT_TRUE(within(std::chrono::seconds(30), [&] { return ask_it().at("sessions") == 2; }));
  const Ran upgraded = muster({"upgrade", "--endpoint", endpoint, "--json"});
  EXPECT_EQ(upgraded.code, 0) << upgraded.err;
  EXPECT_EQ(upgraded.json().at("instance"), 2);
  daemon.running().signal(SIGUSR2);
  EXPECT_TRUE(within(std::chrono::seconds(20), [&] { return ask_it().at("instance") == 3; }));
  EXPECT_TRUE(within(std::chrono::seconds(20), [&] { return ask_it().at("sessions") == 2; })) << ask_it();
  EXPECT_NE(ask_it().at("takeover_ns"), 0);
  folder_.write("stop", "");
  const Ran ended = const_cast<Running&>(run).wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(daemon.stop().code, 0);
  EXPECT_FALSE(std::filesystem::exists(daemon.folder().path() + "/run")) << "it knows its directory still";
}

// Goal:   an engine that a predecessor started in this very process is its child still: how it ended is
//         known.
TEST_F(RestartMoments, KnowsHowAChildEndedAfterAnUpgrade) {
  begin(kThis);
  muster_close(attached("train"));
  EXPECT_EQ(upgrade(""), "");
  kill(engine_of("train"), SIGKILL);
  await_no_job("train");
  EXPECT_THAT(steward().log(), HasSubstr("it was killed by signal 9"));
}

// Without a store the next daemon knows nothing; the engine goes on for its client, and ends with it.
TEST_F(RestartMoments, WithoutAStoreAKillEndsTheJobWithItsLastClient) {
  const Start start{{kThis, "--transient", "--directory", directory()}, {}, {}};
  auto daemon = std::make_unique<Running>(start);
  ASSERT_TRUE(within(std::chrono::seconds(20), [&] { return std::filesystem::exists(socket()); }));
  muster_session* session = attached("train");
  const pid_t engine = engine_of("train");
  daemon->signal(SIGKILL);
  daemon->wait();
  EXPECT_EQ(works(session), MUSTER_OK);
  EXPECT_EQ(waitpid(engine, nullptr, WNOHANG), 0);
  muster_close(session);
  EXPECT_TRUE(within(std::chrono::seconds(20), [&] { return waitpid(engine, nullptr, WNOHANG) == engine; }));
}

// systemd.socket(5): the sockets are the manager's, and so are their files. The name `control` tells which is
// for governors.
TEST_F(RestartMoments, TakesTheSocketsOfSocketUnits) {
  std::filesystem::create_directory(directory() + "/ranks");
  const std::string control = shm::control_socket(directory());
  auto ranks = shm::Listener::open(socket(), {});
  ASSERT_TRUE(ranks) << ranks.error().text();
  steward().give("musterd.socket", shm::Descriptor(dup(ranks->descriptor().get())));
  begin(kThis);
  EXPECT_EQ(status().at("socket"), socket());
  EXPECT_EQ(steward().kept_with("listen-").size(), 1u) << "the control socket is the daemon's own";
  EXPECT_EQ(steward().end(SIGTERM), 0);
  auto governors = shm::Listener::open(control, {});
  ASSERT_TRUE(governors) << governors.error().text();
  steward().give("musterd.socket", shm::Descriptor(dup(ranks->descriptor().get())));
  steward().give("control", shm::Descriptor(dup(governors->descriptor().get())));
  begin(kThis);
  EXPECT_THAT(steward().kept_with("listen-"), IsEmpty());
  EXPECT_EQ(upgrade(""), "") << steward().log();
  EXPECT_EQ(status().at("instance"), 2);
  EXPECT_EQ(steward().end(SIGTERM), 0);
  EXPECT_TRUE(std::filesystem::exists(socket())) << "not the daemon's to remove";
  EXPECT_TRUE(std::filesystem::exists(control)) << "not the daemon's to remove";
}

// READY=1 for each start, STOPPING=1 once; what the watchdog wants goes on after an exec.
TEST_F(RestartMoments, TellsTheStewardWhatItDoes) {
  steward().set("WATCHDOG_USEC=400000");
  begin(kThis);
  status();
  const pid_t pid = steward().pid();
  EXPECT_EQ(upgrade(kNext), "");
  EXPECT_EQ(status().at("pid"), pid);
  EXPECT_EQ(steward().heard("RELOADING=1"), 1u);
  EXPECT_EQ(steward().heard("READY=1"), 2u);
  const std::size_t beats = steward().heard("WATCHDOG=1");
  EXPECT_TRUE(within(std::chrono::seconds(20), [&] { return steward().heard("WATCHDOG=1") > beats; }));
  EXPECT_EQ(steward().end(SIGTERM), 0);
  EXPECT_EQ(steward().heard("STOPPING=1"), 1u);
  EXPECT_EQ(steward().heard("EXTEND_TIMEOUT_USEC=30000000"), 1u) << "a drain of 10 s, and as much twice";
  EXPECT_THAT(steward().kept(), IsEmpty());
}

}  // namespace
}  // namespace muster::test
