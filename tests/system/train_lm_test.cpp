// train_lm as its users start it: `muster run -n N --mesh … -- train_lm …`, real processes, a private daemon
// for each run.
#include "api/examples/train_lm/options.hpp"
#include "api/examples/train_lm/text.hpp"
#include "api/examples/training/random.hpp"
#include "tests/api/examples/reference_model.hpp"
#include "tests/support/folder.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <nlohmann/json.hpp>

namespace train_lm {

using namespace training;

namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

struct Shape {
  int ranks;
  std::string text;
};
const Shape kMeshes[] = {
    {4, "dp_shard=4"}, {2, "dp_replicate=2"},  {4, "tp=2,dp_shard=2"}, {8, "dp_replicate=2,dp_shard=2,tp=2"},
    {3, "dp_shard=3"}, {4, "cp=2,dp_shard=2"}, {6, "tp=3,dp_shard=2"}};

struct Outcome {
  int status = -1;
  std::string out;
  std::string err;
  nlohmann::json figures() const {
    const std::string text = out.substr(0, out.find_last_not_of('\n') + 1);
    return nlohmann::json::parse(text.substr(text.find_last_of('\n') + 1), nullptr, false);
  }
};

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class TrainLm : public testing::Test {
 protected:
  void SetUp() override {
    std::string bytes;  // a text with something to learn: words that repeat
    for (int i = 0; i < 400; ++i)
      bytes += i % 3 == 0 ? "the ranks gather " : i % 7 == 0 ? "and reduce. " : "again ";
    own_.write("text.txt", bytes);
  }

  std::string text_path() const { return (folder_ / "text.txt").string(); }

  Outcome shell(const std::string& command) const {
    const std::string out = (folder_ / "out").string();
    const std::string err = (folder_ / "err").string();
    const int raw = std::system((command + " >" + out + " 2>" + err).c_str());
    return {WIFEXITED(raw) ? WEXITSTATUS(raw) : -1, read(out), read(err)};
  }
  Outcome start(const Shape& mesh, const std::string& arguments) const {
    return start(mesh, arguments, text_path());
  }
  Outcome start(const Shape& mesh, const std::string& arguments, const std::string& text) const {
    return shell(std::string(MUSTER_PROGRAM) + " run --private --no-prefix -n " + std::to_string(mesh.ranks) +
                 " --mesh " + mesh.text + " -- " + TRAIN_LM_PROGRAM + " --text " + text + " " + kSizes + " " +
                 arguments);
  }

  // Ranks that `which` names, a pattern of the shell, have `other` for a text.
  Outcome start_with(const Shape& mesh, const std::string& which, const std::string& other,
                     const std::string& arguments) const {
    const std::string script = "text=" + text_path() + "; case $MUSTER_RANK in " + which + ") text=" + other +
                               ";; esac; exec \"$0\" \"$@\" --text $text";
    return shell(std::string(MUSTER_PROGRAM) + " run --private --no-prefix --grace 60 -n " +
                 std::to_string(mesh.ranks) + " --mesh " + mesh.text + " -- sh -c '" + script + "' " +
                 TRAIN_LM_PROGRAM + " " + kSizes + " " + arguments);
  }
  // The text, but for the bytes in [first, last), which are others.
  std::string text_with_others(std::size_t first, std::size_t last) const {
    std::string bytes = read(text_path());
    for (std::size_t i = first; i < std::min(last, bytes.size()); ++i) bytes[i] = '#';
    own_.write("other.txt", bytes);
    return (folder_ / "other.txt").string();
  }

  // 24 features in heads of 6, 64 inner ones: shards of 3 ranks are uneven in some parameters and even in
  // others.
  static constexpr const char* kSizes = "--layers 2 --width 24 --heads 4 --context 8 --batch 12 --warmup 4";
  static Options sizes() { return Options{.batch = 12, .context = 8, .layers = 2, .width = 24, .heads = 4}; }

  const muster::test::Folder own_;
  const std::filesystem::path folder_ = own_.path();
};

reference::Parameters initial_parameters(const Options& options) {
  reference::Parameters parameters;
  for (const auto& unit : model_units(options))
    for (const Parameter& parameter : unit) {
      auto& values = parameters[parameter.name];
      const CounterRandom random(options.seed, parameter.name);
      for (std::int64_t i = 0; i < parameter.rows * parameter.columns; ++i)
        values.push_back(
            parameter.is_vector()
                ? 1.0
                : static_cast<float>(parameter.deviation * random.normal(static_cast<std::uint64_t>(i))));
    }
  return parameters;
}

reference::Pass reference_pass(const Options& options, const std::string& text_path) {
  const Text text = Text::load(text_path, options.context);
  std::vector<int> ids, targets;
  for (std::int64_t row = 0; row < options.batch; ++row) {
    const auto sequence = text.sequence(options.seed, 0, options.batch, row);
    for (std::size_t i = 0; i + 1 < sequence.size(); ++i) {
      ids.push_back(static_cast<unsigned char>(sequence[i]));
      targets.push_back(static_cast<unsigned char>(sequence[i + 1]));
    }
  }
  const reference::Sizes sizes{.layers = static_cast<std::size_t>(options.layers),
                               .width = static_cast<std::size_t>(options.width),
                               .heads = static_cast<std::size_t>(options.heads),
                               .hidden = static_cast<std::size_t>(options.hidden()),
                               .context = static_cast<std::size_t>(options.context)};
  return reference::run(sizes, initial_parameters(options), ids, targets);
}

// Puts the boxes that the ranks wrote together; where several ranks own one element they must agree on every
// bit.
reference::Parameters assemble(const std::string& prefix, int ranks, const Options& options) {
  reference::Parameters whole;
  std::map<std::string, std::int64_t> columns_of;
  for (const auto& unit : model_units(options))
    for (const Parameter& parameter : unit) {
      whole[parameter.name].assign(static_cast<std::size_t>(parameter.rows * parameter.columns),
                                   std::nan(""));
      columns_of[parameter.name] = parameter.columns;
    }
  for (int rank = 0; rank < ranks; ++rank) {
    std::istringstream lines(read(prefix + ".rank" + std::to_string(rank)));
    std::string name;
    std::int64_t row = 0, rows = 0, column = 0, columns = 0;
    while (lines >> name >> row >> rows >> column >> columns)
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        const std::int64_t at = (row + i / columns) * columns_of.at(name) + column + i % columns;
        double value = 0.0;
        lines >> value;
        double& element = whole.at(name).at(static_cast<std::size_t>(at));
        EXPECT_TRUE(std::isnan(element) || element == value)
            << name << " element " << at << " of rank " << rank;
        element = value;
      }
  }
  return whole;
}

// Goal:   on every mesh the first step's loss and gradients are those of the model in plain loops and double
//         precision.
// Method: dump each rank's shards, put them together by the boxes they name, compare relative to each
//         parameter's largest.
TEST_F(TrainLm, GradientsAreThoseOfTheReferenceModelOnEveryMesh) {
  const Options options = sizes();
  const reference::Pass expected = reference_pass(options, text_path());
  std::vector<Shape> meshes(std::begin(kMeshes), std::end(kMeshes));
  meshes.push_back({1, "dp_shard=1"});
  for (const Shape& mesh : meshes) {
    const std::string dump = (folder_ / "gradients").string();
    const Outcome outcome = start(mesh, "--steps 1 --generate 0 --json --dump-gradients " + dump);
    ASSERT_EQ(outcome.status, 0) << mesh.text << "\n" << outcome.err;
    EXPECT_NEAR(outcome.figures()["final_loss"].get<double>(), expected.loss, 2e-6) << mesh.text;
    const reference::Parameters gradients = assemble(dump, mesh.ranks, options);
    for (const auto& [name, values] : expected.gradients) {
      double largest = 0.0;
      for (const double value : values) largest = std::max(largest, std::fabs(value));
      ASSERT_GT(largest, 0.0) << name;
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(gradients.at(name)[i], values[i], 2e-5 * largest)
            << mesh.text << " " << name << " element " << i;
    }
  }
}

TEST_F(TrainLm, LossesAreThoseOfOneRankAloneOnEveryMesh) {
  for (const Shape& mesh : kMeshes) {
    const Outcome outcome = start(mesh, "--steps 30 --generate 0 --verify --json");
    ASSERT_EQ(outcome.status, 0) << mesh.text << "\n" << outcome.err;
    const auto figures = outcome.figures();
    EXPECT_LE(figures["max_loss_difference"].get<double>(), 1e-3) << mesh.text;
    EXPECT_LT(figures["final_loss"].get<double>(), 3.5) << mesh.text << ": it has learned little";
    EXPECT_EQ(figures["steps"], 30);
    EXPECT_GT(figures["tokens_per_second"].get<double>(), 0.0);
    EXPECT_GT(figures["peak_unsharded_bytes"].get<std::int64_t>(), 0);
  }
}

// Goal:   late ranks change nothing, not one bit.
// Method: the loss of the last step depends on everything before it; compare it, and the sampled text,
//         without delays and with two patterns of them.
TEST_F(TrainLm, RunsOfOneSeedAreBitIdenticalHoweverRanksAreDelayed) {
  for (const Shape& mesh : {kMeshes[3], kMeshes[4]}) {
    const std::string arguments = "--steps 12 --generate 40 --json ";
    const Outcome plain = start(mesh, arguments);
    ASSERT_EQ(plain.status, 0) << plain.err;
    for (const char* delays : {"--delay-ranks 1", "--delay-ranks 2"}) {
      const Outcome delayed = start(mesh, arguments + delays);
      ASSERT_EQ(delayed.status, 0) << delayed.err;
      EXPECT_EQ(delayed.figures()["final_loss"], plain.figures()["final_loss"]) << mesh.text << " " << delays;
      EXPECT_EQ(delayed.out.substr(0, 40), plain.out.substr(0, 40));
    }
    EXPECT_NE(start(mesh, arguments + "--seed 6").figures()["final_loss"], plain.figures()["final_loss"]);
  }
}

TEST_F(TrainLm, LearnsInBf16Too) {
  const Outcome outcome = start(kMeshes[3], "--steps 30 --generate 0 --dtype bf16 --verify --json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  ASSERT_FALSE(outcome.figures().is_discarded()) << outcome.out << outcome.err;
  EXPECT_LT(outcome.figures()["final_loss"].get<double>(), 3.5);
  EXPECT_LT(outcome.figures()["max_loss_difference"].get<double>(), 1e-2);
}

// Bytes of each unit in f32 on a rank that has all of it, as places count them.
std::vector<std::int64_t> unit_bytes(const Options& options) {
  std::vector<std::int64_t> bytes;
  for (const auto& parameters : model_units(options)) {
    std::int64_t elements = 0;
    for (const Parameter& parameter : parameters) elements += parameter.rows * parameter.columns;
    bytes.push_back(ceil_div(elements * 4, 64) * 64);
  }
  return bytes;
}

// Goal:   whole parameters never take more than the budget, and the model is the same to the bit.
// Method: budgets of 1, 1.5, 2 and 3 times the least. The peak is what the largest unit takes, or the two
//         neighbours that take most where there is room for both.
TEST_F(TrainLm, StaysInsideItsBudget) {
  const std::vector<std::int64_t> bytes = unit_bytes(sizes());
  const std::int64_t least = std::ranges::max(bytes);
  std::int64_t pair = 0;
  for (std::size_t i = 0; i + 1 < bytes.size(); ++i) pair = std::max(pair, bytes[i] + bytes[i + 1]);
  const Outcome free = start({4, "dp_shard=4"}, "--steps 5 --generate 0 --json");
  ASSERT_EQ(free.status, 0) << free.err;
  EXPECT_EQ(free.figures()["peak_unsharded_bytes"], pair);
  EXPECT_EQ(free.figures()["least_unsharded_bytes"], least);
  for (const double factor : {1.0, 1.5, 2.0, 3.0}) {
    const auto budget = static_cast<std::int64_t>(factor * static_cast<double>(least));
    const Outcome outcome =
        start({4, "dp_shard=4"}, "--steps 5 --generate 0 --json --budget " + std::to_string(budget));
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.figures()["peak_unsharded_bytes"], pair <= budget ? pair : least) << factor;
    EXPECT_EQ(outcome.figures()["final_loss"], free.figures()["final_loss"]) << factor;
  }
  const Outcome refused =
      start({4, "dp_shard=4"}, "--steps 5 --generate 0 --budget " + std::to_string(least - 1));
  EXPECT_EQ(refused.status, kExitRuntime);
  for (const char* rank : {"0", "1", "2", "3"})
    EXPECT_THAT(refused.err, HasSubstr(std::string("rank ") + rank + ": the budget is " +
                                       std::to_string(least - 1) + " bytes, but " + std::to_string(least)));
}

// Goal:   when units are gathered and freed changes nothing in the model, not one bit.
TEST_F(TrainLm, IsTheSameHoweverUnitsAreGathered) {
  for (const Shape& mesh : {Shape{4, "dp_shard=4"}, Shape{4, "cp=2,dp_shard=2"}}) {
    const std::string arguments = "--steps 6 --generate 0 --json ";
    const Outcome plain = start(mesh, arguments);
    ASSERT_EQ(plain.status, 0) << plain.err;
    for (const char* how : {"--prefetch 0", "--prefetch 2", "--reshard never", "--reshard 2",
                            "--reshard 4 --prefetch 3 --delay-ranks 1", "--reshard 1 --prefetch 0", "--share",
                            "--share --delay-ranks 3"}) {
      const Outcome outcome = start(mesh, arguments + how);
      ASSERT_EQ(outcome.status, 0) << how << outcome.err;
      EXPECT_EQ(outcome.figures()["final_loss"], plain.figures()["final_loss"]) << mesh.text << " " << how;
    }
  }
}

// Goal:   a parameter that is used twice gets the sum of both gradients.
// Method: the losses are those of one rank alone, whose table is one as well; and other than untied.
TEST_F(TrainLm, TiesHeadAndEmbedding) {
  for (const Shape& mesh : {Shape{4, "dp_shard=4"}, Shape{8, "dp_replicate=2,dp_shard=2,tp=2"}}) {
    const Outcome outcome = start(mesh, "--steps 30 --generate 0 --tied --verify --json");
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_LE(outcome.figures()["max_loss_difference"].get<double>(), 1e-3) << mesh.text;
    EXPECT_LT(outcome.figures()["final_loss"].get<double>(), 3.5) << mesh.text;
  }
}

// Goal:   case T8. If one rank along tp has other data in the first step, all ranks along tp end with an
//         error that names it; or both, where there are only two.
TEST_F(TrainLm, EndsWhereBatchesDifferAlongTp) {
  const std::string other = text_with_others(0, SIZE_MAX);
  const Outcome three = start_with({3, "tp=3,dp_shard=1"}, "1", other, "--steps 3 --generate 0");
  EXPECT_EQ(three.status, kExitRuntime) << three.err;
  for (const char* rank : {"0", "1", "2"})
    EXPECT_THAT(three.err, ContainsRegex(std::string("rank ") + rank +
                                         ": ranks along tp have different batches in step 1; .*: rank 1 "
                                         "holds other bytes than the majority"));
  const Outcome two = start_with({4, "dp_shard=2,tp=2"}, "3", other, "--steps 3 --generate 0");
  EXPECT_EQ(two.status, kExitRuntime) << two.err;
  for (const char* rank : {"2", "3"})
    EXPECT_THAT(two.err, ContainsRegex(std::string("rank ") + rank +
                                       ": ranks along tp have different batches in step 1; .* at rank [23]; "
                                       ".* at rank [23]"));
  const Outcome seeds =
      shell(std::string(MUSTER_PROGRAM) +
            " run --private --no-prefix --grace 60 -n 2 --mesh tp=2,dp_shard=1 "
            "-- sh -c 'exec \"$0\" \"$@\" --seed $MUSTER_RANK' " +
            TRAIN_LM_PROGRAM + " --text " + text_path() + " " + kSizes + " --steps 3 --generate 0");
  EXPECT_EQ(seeds.status, kExitRuntime) << seeds.err;
  EXPECT_THAT(seeds.err, HasSubstr("start them with one --text and one --seed"));
}

// Goal:   case T8. Later steps are compared if one asks for it.
// Method: change a byte that the first step does not read, and the second one does.
TEST_F(TrainLm, ComparesLaterBatchesIfAsked) {
  const Options options = sizes();
  const Text text = Text::load(text_path(), options.context);
  const auto is_read = [&](std::int64_t step, std::size_t byte) {
    for (std::int64_t row = 0; row < options.batch; ++row) {
      const auto sequence = text.sequence(options.seed, step, options.batch, row);
      const auto first = static_cast<std::size_t>(sequence.data() - text.prompt().data());
      if (byte >= first && byte < first + sequence.size()) return true;
    }
    return false;
  };
  std::size_t byte = 0;
  while (byte < text.size() && (is_read(0, byte) || !is_read(1, byte))) ++byte;
  ASSERT_LT(byte, text.size());
  const std::string other = text_with_others(byte, byte + 1);
  const Shape mesh{2, "tp=2,dp_shard=1"};
  const Outcome first = start_with(mesh, "1", other, "--steps 2 --generate 0");
  EXPECT_EQ(first.status, 0) << first.err;
  const Outcome every = start_with(mesh, "1", other, "--steps 2 --generate 0 --check-batches");
  EXPECT_EQ(every.status, kExitRuntime) << every.err;
  for (const char* rank : {"0", "1"})
    EXPECT_THAT(every.err,
                HasSubstr(std::string("rank ") + rank + ": ranks along tp have different batches in step 2"));
  EXPECT_EQ(start(kMeshes[3], "--steps 4 --generate 0 --check-batches").status, 0);
}

// Goal:   case T8, the other way: what one rank along tp draws is the batch of all.
// Method: the others have a text of which they must read nothing; the losses are those of one text to the
//         bit.
TEST_F(TrainLm, TakesTheBatchOfTheFirstRankAlongTp) {
  const std::string other = text_with_others(0, SIZE_MAX);
  for (const Shape& mesh : {Shape{3, "tp=3,dp_shard=1"}, kMeshes[3]}) {
    const std::string arguments = "--steps 6 --generate 0 --json ";
    const Outcome plain = start(mesh, arguments);
    ASSERT_EQ(plain.status, 0) << plain.err;
    const std::string which = mesh.ranks == 3 ? "1|2" : "1|3|5|7";
    for (const char* delays : {"", "--delay-ranks 1"}) {
      const Outcome one = start_with(mesh, which, other, arguments + "--broadcast-batch " + delays);
      ASSERT_EQ(one.status, 0) << one.err;
      EXPECT_EQ(one.figures()["final_loss"], plain.figures()["final_loss"]) << mesh.text << delays;
    }
  }
}

TEST_F(TrainLm, WritesATraceAndAPage) {
  const std::string trace = (folder_ / "trace.json").string();
  const std::string page = (folder_ / "page.html").string();
  const Outcome outcome = start(kMeshes[2], "--steps 4 --generate 20 --trace " + trace + " --html " + page);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto json = nlohmann::json::parse(read(trace), nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  const std::string html = read(page);
  for (const char* text : {"<polyline", "all_gather", "reduce_scatter", "linear_forward", "rank 3"})
    EXPECT_THAT(html, HasSubstr(text));
}

// Goal:   a recording of the job that already runs goes on, and the model is trained all the same.
TEST_F(TrainLm, TrainsWithoutATraceWhereAnotherRecords) {
  const std::string outer = (folder_ / "outer.json").string();
  const std::string own = (folder_ / "own.json").string();
  const Outcome outcome = shell(
      std::string(MUSTER_PROGRAM) + " run --private --no-prefix -n 2 --mesh dp_shard=2 --trace " + outer +
      " -- " + TRAIN_LM_PROGRAM + " --text " + text_path() + " " + kSizes + " --steps 3 --trace " + own);
  EXPECT_EQ(outcome.status, EXIT_FAILURE) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("step 3/3"));
  EXPECT_THAT(outcome.err, HasSubstr("cannot write " + own + ": a recording of job"));
  EXPECT_THAT(outcome.err, HasSubstr("is on already, of `muster run`"));
  EXPECT_FALSE(std::filesystem::exists(own));
  EXPECT_THAT(read(outer), HasSubstr("linear_forward"));
}

// Goal:   every survivor names the rank that was killed, also those that share no group with it, and nobody
//         waits for a deadline or for the launcher's patience.
// Method: rank 1 of 2 x 2 is killed in mid-training by what it was a shell for; the others would train for
//         ever.
TEST_F(TrainLm, NamesTheKilledRankOnEverySurvivor) {
  const std::string script = "if [ $MUSTER_RANK = 1 ]; then (sleep 1.5; kill -9 $$) & fi; exec \"$0\" \"$@\"";
  const Outcome run = shell(std::string(MUSTER_PROGRAM) +
                            " run --private --no-prefix --grace 600 -n 4 --mesh dp_shard=2,tp=2 -- sh -c '" +
                            script + "' " + TRAIN_LM_PROGRAM + " --steps 1000000 --text " + text_path());
  EXPECT_EQ(run.status, 128 + SIGKILL) << run.err;
  for (const char* rank : {"0", "2", "3"})
    EXPECT_THAT(run.err, HasSubstr(std::string("rank ") + rank + ": rank 1 ")) << run.err;
}

// Goal:   a rank that ends before it attaches is waited for by nobody, also by those that come later.
TEST_F(TrainLm, WaitsForNoRankThatEndedBeforeItAttached) {
  const std::string script =
      "[ $MUSTER_RANK = 1 ] && exit 7; [ $MUSTER_RANK = 0 ] && sleep 1; exec \"$0\" \"$@\"";
  const Outcome run = shell(std::string(MUSTER_PROGRAM) +
                            " run --private --no-prefix --grace 600 -n 4 --mesh dp_shard=2,tp=2 -- sh -c '" +
                            script + "' " + TRAIN_LM_PROGRAM + " --steps 1000000 --text " + text_path());
  EXPECT_EQ(run.status, 7) << run.err;
  for (const char* rank : {"0", "2", "3"})
    EXPECT_THAT(run.err, HasSubstr(std::string("rank ") + rank + ": rank 1 exited with code 7")) << run.err;
}

TEST_F(TrainLm, RefusesWrongOptionsWithStatusTwo) {
  const auto expect = [&](const Shape& mesh, const std::string& arguments, const std::string& text) {
    const Outcome outcome = start(mesh, arguments);
    EXPECT_EQ(outcome.status, kExitUsage) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(text)) << arguments;
  };
  expect({2, "dp_shard=2"}, "--stepz 3 --last 4", "unknown option --stepz;");
  expect({5, "dp_shard=5"}, "--steps 2", "--batch 12 is not a multiple of dp_replicate 1 x dp_shard 5 = 5");
  expect({2, "pp=2,dp_shard=1"}, "--steps 2", "pp=2");
  expect({3, "cp=3,dp_shard=1"}, "--steps 2", "--context 8 is not a multiple of cp 3");
  expect({3, "dp_shard=3"}, "--steps 2 --reshard 2", "--reshard 2 must divide dp_shard 3 x cp 1");
  expect({2, "dp_shard=2"}, "--steps 2 --reshard 2x", "it must be always, never, or a number of ranks");
  expect({5, "tp=5,dp_shard=1"}, "--steps 2", "--heads 4 are fewer than tp 5: a head is not cut");
  const Outcome no_text = start({2, "dp_shard=2"}, "--steps 2", (folder_ / "missing").string());
  EXPECT_EQ(no_text.status, kExitUsage);
  EXPECT_THAT(no_text.err, HasSubstr("cannot be opened"));
}

// Goal:   a wrong path is reported before the training and not after it, and nothing is left there.
TEST_F(TrainLm, RefusesFilesThatItCannotWriteBeforeItTrains) {
  for (const std::string option : {"--trace", "--html", "--dump-gradients"}) {
    const Outcome outcome = start({2, "dp_shard=2"}, "--steps 2 " + option + " /nonexistent/file");
    EXPECT_EQ(outcome.status, EXIT_FAILURE) << option;
    EXPECT_THAT(outcome.err, HasSubstr("train_lm: cannot write /nonexistent/file")) << option;
    EXPECT_THAT(outcome.err, HasSubstr("there is no folder /nonexistent")) << option;
    EXPECT_THAT(outcome.err, Not(HasSubstr("step 1/2"))) << option;
  }
  const std::string trace = (folder_ / "new.json").string();
  EXPECT_EQ(start({2, "pp=2,dp_shard=1"}, "--steps 2 --trace " + trace).status, kExitUsage);
  EXPECT_FALSE(std::filesystem::exists(trace)) << "the check made it";
}

TEST_F(TrainLm, EndsWithOneWhenStandardOutputIsFull) {
  const Outcome outcome =
      shell("(" + std::string(MUSTER_PROGRAM) + " run --private -n 1 -- " + TRAIN_LM_PROGRAM + " --text " +
            text_path() + " " + kSizes + " --steps 1 --generate 10 >/dev/full)");
  EXPECT_EQ(outcome.status, EXIT_FAILURE) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("cannot write standard output: No space left on device"));
}

TEST_F(TrainLm, RefusesNonsenseOfALauncherWithStatusTwo) {
  for (const char* variables :
       {"MUSTER_RANK=x MUSTER_WORLD_SIZE=2", "MUSTER_RANK=2 MUSTER_WORLD_SIZE=2", "MUSTER_RANK=0"}) {
    const Outcome outcome = shell(std::string(variables) + " " + TRAIN_LM_PROGRAM + " --text " + text_path());
    EXPECT_EQ(outcome.status, kExitUsage) << variables << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("train_lm: ")) << variables;
    EXPECT_EQ(shell(std::string(variables) + " " + MUSTER_PROGRAM + " env").status, kExitUsage) << variables;
  }
}

TEST_F(TrainLm, RefusesAnotherMeshThanTheJobsWithStatusTwo) {
  const Outcome outcome =
      shell(std::string(MUSTER_PROGRAM) + " run --private -n 2 --mesh dp_shard=2 -- env MUSTER_MESH=tp=2 " +
            TRAIN_LM_PROGRAM + " --text " + text_path() + " --steps 1");
  EXPECT_EQ(outcome.status, kExitUsage) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("asks for the mesh"));
}

TEST_F(TrainLm, SaysWhichRankAndWhyWhenThereIsNoDaemon) {
  const Outcome outcome =
      shell("MUSTER_ENDPOINT=" + (folder_ / "nobody.sock").string() +
            " MUSTER_JOB=j MUSTER_RANK=0 MUSTER_WORLD_SIZE=1 " + TRAIN_LM_PROGRAM + " --steps 1");
  EXPECT_EQ(outcome.status, kExitRuntime);
  EXPECT_THAT(outcome.err, HasSubstr("rank 0: "));
}

}  // namespace
}  // namespace train_lm
