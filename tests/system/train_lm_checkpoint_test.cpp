// train_lm as its users stop and resume it: real processes, real files, kill -9.
#include "api/base/checkpoint/write_plan.hpp"
#include "api/base/checksum.hpp"
#include "api/base/store/checkpoint_list.hpp"
#include "api/base/store/saved_folder.hpp"
#include "api/base/store/staged_folder.hpp"
#include "tests/support/folder.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

namespace train_lm {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Ended {
  int status = -1;
  double final_loss = 0;
  std::vector<double> losses;  // by step
  std::string err;
};

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class TrainLmCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    std::string bytes;
    for (int i = 0; i < 400; ++i)
      bytes += i % 3 == 0 ? "the ranks save " : i % 7 == 0 ? "and load. " : "again ";
    own_.write("text.txt", bytes);
  }

  std::string command(const std::string& mesh, const std::string& arguments) const {
    return std::string(MUSTER_PROGRAM) + " run --private --no-prefix -n " + std::to_string(ranks_of(mesh)) +
           " --mesh " + mesh + " -- " + TRAIN_LM_PROGRAM + " --text " + own_.path() +
           "/text.txt --layers 2 " +
           "--width 24 --heads 4 --context 8 --batch 12 --warmup 4 --generate 0 --json " + arguments;
  }
  Ended train(const std::string& mesh, const std::string& arguments) const {
    return run(command(mesh, arguments));
  }
  Ended run(const std::string& line) const {
    const std::string out = own_.path() + "/out", err = own_.path() + "/err";
    const int raw = std::system((line + " >" + out + " 2>" + err).c_str());
    return ended_of(WIFEXITED(raw) ? WEXITSTATUS(raw) : -1, text_of(out), text_of(err));
  }
  static Ended ended_of(int status, const std::string& out, const std::string& err) {
    Ended ended{status, 0, {}, err};
    if (const auto at = out.find("{\"steps\""); at != std::string::npos) {
      const auto figures = nlohmann::json::parse(out.substr(at, out.find('\n', at) - at));
      ended.final_loss = figures.at("final_loss");
      ended.losses = figures.at("losses").get<std::vector<double>>();
    }
    return ended;
  }
  static int ranks_of(const std::string& mesh) {
    int ranks = 1;
    for (std::size_t at = mesh.find('='); at != std::string::npos; at = mesh.find('=', at + 1))
      ranks *= std::atoi(mesh.c_str() + at + 1);
    return ranks;
  }
  std::string path(const std::string& name) const { return own_.path() + "/" + name; }

  static pid_t start(const std::string& command, const std::string& out, const std::string& err) {
    std::istringstream split(command);
    std::vector<std::string> words{std::istream_iterator<std::string>(split), {}};
    std::vector<char*> list;
    for (std::string& word : words) list.push_back(word.data());
    list.push_back(nullptr);
    const pid_t job = fork();
    if (job != 0) return job;
    (void)!freopen(out.c_str(), "w", stdout);
    (void)!freopen(err.c_str(), "w", stderr);
    execv(list[0], list.data());
    _exit(127);
  }

  static int saves_under_way(const std::string& run) {
    int count = 0;
    std::error_code gone;  // while it is listed
    for (fs::directory_iterator each(run, gone), end; !gone && each != end; each.increment(gone))
      count += each->path().filename().string().find(".partial-") != std::string::npos;
    return count;
  }
  // Until the job is in the middle of a save, or has ended.
  static void await_a_save(const std::string& run, pid_t job) {
    siginfo_t ended{};
    while (saves_under_way(run) == 0 && ended.si_pid == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (waitid(P_PID, static_cast<id_t>(job), &ended, WEXITED | WNOHANG | WNOWAIT) != 0) return;
    }
  }

  // Whether both have the same bytes of parameters and moments, in the same files.
  static void expect_equal(const std::string& a, const std::string& b) {
    int files = 0;
    for (const auto& file : fs::directory_iterator(a)) {
      if (file.path().extension() != ".bin") continue;
      ++files;
      EXPECT_TRUE(text_of(file.path()) == text_of(b + "/" + file.path().filename().string())) << file.path();
    }
    EXPECT_GT(files, 0);
  }

  const muster::test::Folder own_;
};

// Goal:   case C9: a resumed run is the uninterrupted one: to the bit on its mesh, nearly on another, whose
//         sums are rounded in another order.
TEST_F(TrainLmCheckpoint, GoesOnAsIfItHadNotStopped) {
  const std::string mesh = "dp_shard=2,tp=2";
  const Ended whole = train(mesh, "--steps 20 --save " + path("whole"));
  ASSERT_EQ(whole.status, 0) << whole.err;
  const Ended half = train(mesh, "--steps 20 --save " + path("half") + " --save-every 10 --keep 0");
  ASSERT_EQ(half.status, 0) << half.err;
  fs::remove_all(path("half") + "/step-000000000020");
  const Ended rest = train(mesh, "--steps 20 --resume " + path("half") + " --save " + path("rest"));
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_THAT(rest.err, HasSubstr("goes on from " + path("half") + "/step-000000000010"));
  EXPECT_EQ(rest.final_loss, whole.final_loss);
  expect_equal(path("whole") + "/step-000000000020", path("rest") + "/step-000000000020");
  for (const char* other :
       {"dp_shard=3", "dp_replicate=2,dp_shard=2,tp=2", "cp=2,dp_shard=2", "tp=2", "dp_shard=1"}) {
    const Ended ended = train(other, "--steps 20 --resume " + path("half"));
    ASSERT_EQ(ended.status, 0) << other << ": " << ended.err;
    EXPECT_NEAR(ended.final_loss, whole.final_loss, 1e-3) << other;
  }
}

// Goal:   whenever a whole job is killed, it goes on from its newest checkpoint, and ends as if it had not
//         been.
// Method: a job that saves at each step is killed in the middle of a save, then at random times; then it runs
//         to its end.
TEST_F(TrainLmCheckpoint, SurvivesAKillOfTheWholeJobAtAnyTime) {
  const std::string mesh = "dp_shard=2,tp=2", run = path("run");
  ASSERT_EQ(train(mesh, "--steps 30 --save " + path("whole")).status, 0);
  const std::string arguments = "--steps 30 --save-every 1 --keep 3 --save " + run + " --resume " + run;
  std::minstd_rand random(7);
  int in_mid_save = 0;
  for (int round = 0; round < 12; ++round) {
    const pid_t job = start(command(mesh, arguments), "/dev/null", "/dev/null");
    if (in_mid_save == 0)
      await_a_save(run, job);
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(150 + random() % 350));
    kill(job, SIGKILL);
    waitpid(job, nullptr, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the kernel ends the ranks
    std::vector<muster::Status> refused;
    const auto entries = muster::store::list_checkpoints(run, &refused);
    ASSERT_TRUE(entries);
    EXPECT_TRUE(refused.empty()) << refused.front().message();
    for (const auto& entry : *entries) {
      auto saved = muster::store::SavedFolder::open(run + "/" + entry.name);
      ASSERT_TRUE(saved);
      EXPECT_TRUE(saved->verify().ok()) << entry.name;
    }
    in_mid_save += saves_under_way(run);
  }
  RecordProperty("killed_in_mid_save", in_mid_save);
  EXPECT_GT(in_mid_save, 0) << "no kill was in the middle of a save";
  const Ended last = train(mesh, arguments);
  if (last.status != 0) {
    EXPECT_THAT(last.err, HasSubstr("has done 30 steps"));
  }
  expect_equal(path("whole") + "/step-000000000030", run + "/step-000000000030");
}

// Goal:   case C10: shards are what is saved, also where parameters stay whole after their forward.
TEST_F(TrainLmCheckpoint, SavesShardsWhereParametersStayWhole) {
  ASSERT_EQ(train("dp_shard=2", "--steps 6 --save " + path("usual")).status, 0);
  const Ended whole = train("dp_shard=2", "--steps 6 --save-every 3 --reshard never --save " + path("never"));
  ASSERT_EQ(whole.status, 0) << whole.err;
  expect_equal(path("usual") + "/step-000000000006", path("never") + "/step-000000000006");
}

// Goal:   shards that lie in a copy of the node are saved and loaded like others, with their moments.
TEST_F(TrainLmCheckpoint, SavesShardsThatRanksShareOnANode) {
  for (const char* mesh : {"dp_shard=2", "dp_shard=2,tp=2"}) {
    const std::string at = path(mesh);
    const Ended usual = train(mesh, "--steps 6 --save " + at + "/usual");
    ASSERT_EQ(usual.status, 0) << usual.err;
    const Ended half = train(mesh, "--share --steps 6 --save-every 3 --keep 0 --save " + at + "/shared");
    ASSERT_EQ(half.status, 0) << half.err;
    expect_equal(at + "/usual/step-000000000006", at + "/shared/step-000000000006");
    fs::remove_all(at + "/shared/step-000000000006");
    const Ended rest = train(mesh, "--share --steps 6 --resume " + at + "/shared --save " + at + "/rest");
    ASSERT_EQ(rest.status, 0) << rest.err;
    expect_equal(at + "/usual/step-000000000006", at + "/rest/step-000000000006");
  }
}

// Goal:   the demo's own model on its eight ranks: resumed to the bit, and a flipped bit is named.
TEST_F(TrainLmCheckpoint, HoldsTheDemosModelOnEightRanks) {
  const std::string line = std::string(MUSTER_PROGRAM) +
                           " run --private --no-prefix -n 8 --mesh dp_replicate=2,dp_shard=2,tp=2 -- " +
                           TRAIN_LM_PROGRAM + " --text " + path("text.txt") + " --generate 0 --json ";
  const Ended whole = run(line + "--steps 2 --save " + path("whole"));
  ASSERT_EQ(whole.status, 0) << whole.err;
  const Ended half = run(line + "--steps 2 --save-every 1 --save " + path("half"));
  ASSERT_EQ(half.status, 0) << half.err;
  fs::remove_all(path("half") + "/step-000000000002");
  const Ended rest = run(line + "--steps 2 --resume " + path("half") + " --save " + path("rest"));
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(rest.final_loss, whole.final_loss);
  expect_equal(path("whole") + "/step-000000000002", path("rest") + "/step-000000000002");

  const std::string damaged = path("half") + "/step-000000000001/rank-3.bin";
  std::fstream file(damaged, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(1000);
  const char byte = static_cast<char>(file.get() ^ 4);
  file.seekp(1000);
  file.put(byte);
  file.close();
  const Ended refused = run(line + "--steps 2 --resume " + path("half"));
  EXPECT_EQ(refused.status, 3) << refused.err;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("is damaged"), HasSubstr("rank-3.bin"), HasSubstr("block0.")));
}

// The process of a rank of `muster run`; 0 if it has none any more.
pid_t rank_of(pid_t run, int rank) {
  const std::string text =
      text_of("/proc/" + std::to_string(run) + "/task/" + std::to_string(run) + "/children");
  std::istringstream children(text);
  const std::string wanted = "MUSTER_RANK=" + std::to_string(rank);
  for (pid_t child = 0; children >> child;) {
    const std::string variables = '\0' + text_of("/proc/" + std::to_string(child) + "/environ");
    if (variables.find('\0' + wanted + '\0') != std::string::npos) return child;
  }
  return 0;
}

// Goal:   ranks that die do not end an elastic run. The others take a smaller mesh, and learn from there what
//         a run on that mesh learns that begins with the same checkpoint.
// Method: kills a rank, then another, each once a later checkpoint is there; then runs anew from the two
//         checkpoints that the run went on from, on their meshes.
TEST_F(TrainLmCheckpoint, GoesOnWithoutRanksThatWereLost) {
  struct Case {
    const char* mesh;
    std::vector<int> victims;
    std::vector<const char*> smaller;
  };
  for (const Case& c :
       {Case{"dp_shard=4", {2, 0}, {"dp_shard=3", "dp_shard=2"}},
        Case{"dp_replicate=2,dp_shard=2,tp=2", {5, 0}, {"dp_shard=3,tp=2", "dp_shard=2,tp=2"}}}) {
    SCOPED_TRACE(c.mesh);
    const std::string run = path("run"), out = path("elastic_out"), err = path("elastic_err");
    fs::remove_all(run);
    std::string line = command(c.mesh, "--steps 800 --elastic --save-every 25 --keep 0 --save " + run);
    line.insert(line.find(" --private"), " --elastic");
    const pid_t job = start(line, out, err);
    const auto newest = [&] {
      std::uint64_t step = 0;
      if (const auto entries = muster::store::list_checkpoints(run, nullptr))
        for (const auto& entry : *entries) step = std::max(step, entry.step);
      return step;
    };
    std::uint64_t past = 0;
    for (const int victim : c.victims) {
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (newest() <= past && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      past = newest() + 25;  // so the next loss comes after the run went on
      const pid_t rank = rank_of(job, victim);
      ASSERT_NE(rank, 0) << text_of(err);
      kill(rank, SIGKILL);
    }
    int raw = 0;
    ASSERT_EQ(waitpid(job, &raw, 0), job);
    const Ended elastic = ended_of(WIFEXITED(raw) ? WEXITSTATUS(raw) : -1, text_of(out), text_of(err));
    ASSERT_EQ(elastic.status, 0) << elastic.err;
    ASSERT_EQ(elastic.losses.size(), 800u);
    std::vector<std::size_t> from;
    const std::string mark = "goes on from " + run + "/step-";
    for (auto at = elastic.err.find(mark); at != std::string::npos; at = elastic.err.find(mark, at + 1))
      from.push_back(std::stoul(elastic.err.substr(at + mark.size(), 12)));
    ASSERT_EQ(from.size(), 2u) << elastic.err;
    from.push_back(800);
    for (std::size_t i = 0; i < 2; ++i) {
      char name[32];
      std::snprintf(name, sizeof name, "step-%012zu", from[i]);
      const std::string begin = path("begin") + std::to_string(i);
      fs::remove_all(begin);
      fs::create_directories(begin);
      fs::copy(run + "/" + name, begin + "/" + name, fs::copy_options::recursive);
      const Ended again = train(c.smaller[i], "--steps 800 --resume " + begin);
      ASSERT_EQ(again.status, 0) << again.err;
      EXPECT_EQ(std::vector<double>(elastic.losses.begin() + static_cast<std::ptrdiff_t>(from[i]),
                                    elastic.losses.begin() + static_cast<std::ptrdiff_t>(from[i + 1])),
                std::vector<double>(again.losses.begin(), again.losses.begin() + static_cast<std::ptrdiff_t>(
                                                                                     from[i + 1] - from[i])))
          << c.smaller[i];
    }
  }
}

TEST_F(TrainLmCheckpoint, RefusesARunThatIsAnother) {
  ASSERT_EQ(train("dp_shard=2", "--steps 4 --save " + path("run")).status, 0);
  const auto refusal = [&](const std::string& arguments, int status) {
    const Ended ended = train("dp_shard=2", arguments);
    EXPECT_EQ(ended.status, status) << ended.err;
    return ended.err;
  };
  EXPECT_THAT(refusal("--steps 9 --seed 2 --resume " + path("run"), 2),
              HasSubstr("was made with --seed 1, but this run has 2"));
  EXPECT_THAT(refusal("--steps 4 --resume " + path("run"), 2),
              HasSubstr("has done 4 steps; choose more --steps"));
  EXPECT_THAT(refusal("--steps 9 --verify --resume " + path("run"), 2), HasSubstr("--verify"));
  EXPECT_THAT(refusal("--steps 9 --save-every 2", 2), HasSubstr("--save-every needs --save"));
  EXPECT_THAT(refusal("--steps 9 --elastic", 2), HasSubstr("--elastic needs --save"));
  EXPECT_THAT(refusal("--steps 9 --save " + path("run"), 2), HasSubstr("has checkpoints of another run"));
  EXPECT_THAT(refusal("--steps 9 --save " + path("text.txt"), 1),
              HasSubstr("cannot write " + path("text.txt")));
  EXPECT_THAT(refusal("--steps 2 --resume " + path("none"), 2),
              HasSubstr("there is no checkpoint in " + path("none") + ": name the folder of a run"));
}

// Goal:   a checkpoint of another model, text or precision is refused with both values, not gone on from.
TEST_F(TrainLmCheckpoint, RefusesACheckpointOfAnotherModel) {
  const std::string run = path("run"), model = "--layers 2 --width 24 --heads 4 ";
  ASSERT_EQ(train("dp_shard=1", "--steps 2 --save " + run).status, 0);
  const auto refusal = [&](const std::string& from, const std::string& to, const std::string& arguments) {
    std::string line = command("dp_shard=1", "--steps 4 --resume " + run + " " + arguments);
    line.replace(line.find(from), from.size(), to);
    const Ended ended = this->run(line);
    EXPECT_EQ(ended.status, 2) << ended.err;
    EXPECT_THAT(ended.err, Not(HasSubstr("goes on from")));
    return ended.err;
  };
  EXPECT_THAT(refusal("--layers 2", "--layers 1", ""), HasSubstr("made with --layers 2, but this run has 1"));
  EXPECT_THAT(refusal("--width 24", "--width 16", ""),
              HasSubstr("made with --width 24, but this run has 16"));
  EXPECT_THAT(refusal("--heads 4", "--heads 2", ""), HasSubstr("made with --heads 4, but this run has 2"));
  EXPECT_THAT(refusal("--json", "--json", "--tied"),
              HasSubstr("made with --tied left out, but this run has it given"));
  EXPECT_THAT(refusal("--json", "--json", "--dtype bf16"),
              HasSubstr("made with --dtype f32, but this run has bf16"));
  std::string other = text_of(path("text.txt"));
  other[100] ^= 1;
  own_.write("other.txt", other);
  EXPECT_THAT(refusal("text.txt", "other.txt", ""), HasSubstr("made with a text of the hash "));
}

// Copies a checkpoint as a program would have made it that saved no more than the first 40 bytes of the
// state.
muster::Status save_older(const std::string& from, const std::string& folder) {
  namespace checkpoint = muster::checkpoint;
  MUSTER_ASSIGN_OR_RETURN(auto saved, muster::store::SavedFolder::open(from));
  std::vector<std::vector<checkpoint::OwnTensor>> members(1);
  for (const checkpoint::SavedTensor& tensor : saved.record().tensors) {
    muster::Index shape = tensor.shape;
    if (tensor.name.empty()) shape[0] = 40;
    members[0].push_back(
        {tensor.name, tensor.dtype, tensor.dims, shape, {muster::Box{tensor.dims, {}, shape}}});
  }
  MUSTER_ASSIGN_OR_RETURN(auto plan, checkpoint::plan_write(members, saved.record().step));
  MUSTER_ASSIGN_OR_RETURN(auto staged,
                          muster::store::StagedFolder::make(folder, "step-000000000002", 1,
                                                            muster::store::StagedFolder::Existing::kRefuse));
  MUSTER_ASSIGN_OR_RETURN(auto file, muster::store::DiskFile::create(staged.path() + "/rank-0.bin"));
  for (const checkpoint::WritePlan::BoxIndex& place : checkpoint::boxes_of(plan, 0)) {
    checkpoint::SavedTensor& tensor = plan.record.tensors[place.tensor];
    MUSTER_ASSIGN_OR_RETURN(std::vector<std::byte> bytes,
                            saved.read_whole(*saved.record().find(tensor.name), muster::store::Pause()));
    bytes.resize(checkpoint::bytes_of(tensor.boxes[place.box].box, tensor.dtype));
    tensor.boxes[place.box].sums = {checkpoint::checksum(bytes)};
    MUSTER_RETURN_IF_ERROR(file.write(bytes));
  }
  return staged.commit(plan.record);
}

// Goal:   checkpoints of programs before these figures were saved: the tensors alone say which model it is.
// Method: exports a checkpoint's tensors, and makes one of them whose user's state ends where it did then.
TEST_F(TrainLmCheckpoint, TakesOlderCheckpointsByTheirTensors) {
  const std::string run = path("run"), old = path("old");
  ASSERT_EQ(train("dp_shard=1", "--steps 2 --save " + run).status, 0);
  const muster::Status older = save_older(run + "/step-000000000002", old);
  ASSERT_TRUE(older.ok()) << older.text();
  const Ended goes_on = train("dp_shard=1", "--steps 4 --resume " + old);
  EXPECT_EQ(goes_on.status, 0) << goes_on.err;
  EXPECT_THAT(goes_on.err, HasSubstr("goes on from " + old));
  std::string line = command("dp_shard=1", "--steps 4 --resume " + old);
  const std::string tied = line + " --tied";
  const Ended other = this->run(tied);
  EXPECT_EQ(other.status, 2) << other.err;
  EXPECT_THAT(other.err, AllOf(HasSubstr("tensors, but this model has"), Not(HasSubstr("goes on"))));
  line.replace(line.find("--width 24"), 10, "--width 16");
  const Ended narrow = this->run(line);
  EXPECT_EQ(narrow.status, 2) << narrow.err;
  EXPECT_THAT(narrow.err, HasSubstr("was made by another model: "));
}

// Goal:   --resume takes what `muster checkpoint` takes: a run, or one checkpoint of it.
TEST_F(TrainLmCheckpoint, GoesOnFromTheCheckpointThatIsNamed) {
  const std::string run = path("run");
  ASSERT_EQ(train("dp_shard=2", "--steps 4 --save-every 2 --keep 0 --save " + run).status, 0);
  const std::string second = run + "/step-000000000002";
  for (const char* slash : {"", "/"}) {
    const Ended ended = train("dp_shard=2", "--steps 4 --resume " + second + slash + " --save " + run + "/");
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("goes on from " + second + "\n"));
    EXPECT_EQ(ended.losses.size(), 2U);
  }
  const Ended other = train("dp_shard=2", "--steps 6 --resume " + run + "/../run --save " + run);
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_THAT(other.err, HasSubstr("/step-000000000004\n"));
}

// Goal:   two runs that save into one folder would remove each other's checkpoints: the second is refused.
// Method: while one run trains, another is started; then the first is killed, and its folder is free.
TEST_F(TrainLmCheckpoint, HasItsFolderForItself) {
  const std::string run = path("run"), arguments = "--save-every 5 --save " + run + " --resume " + run;
  const pid_t job = start(command("dp_shard=1", "--steps 100000 " + arguments), "/dev/null", "/dev/null");
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto saved = [&] {
    const auto entries = muster::store::list_checkpoints(run, nullptr);
    return entries && !entries->empty();
  };
  while (!saved() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_TRUE(saved());
  const pid_t holder = rank_of(job, 0);
  const Ended refused = train("dp_shard=2", "--steps 5000 " + arguments);
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("process " + std::to_string(holder) + " on "),
                                 HasSubstr("saves into " + run), Not(HasSubstr("goes on"))));
  kill(job, SIGKILL);
  waitpid(job, nullptr, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the kernel ends the ranks
  const auto entries = muster::store::list_checkpoints(run, nullptr);
  ASSERT_TRUE(entries);
  for (const auto& entry : *entries) EXPECT_TRUE(entry.name.starts_with("step-")) << entry.name;
  const Ended next =
      train("dp_shard=1", "--steps " + std::to_string(entries->back().step + 500) + " " + arguments);
  EXPECT_EQ(next.status, 0) << next.err;
}

}  // namespace
}  // namespace train_lm
