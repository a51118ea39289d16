#include "api/examples/train_lm/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace train_lm {

using namespace training;

namespace {

using ::testing::HasSubstr;

std::optional<Options> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "train_lm");
  return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

std::string why(const std::vector<const char*>& arguments) {
  try {
    parse(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(TrainLmOptions, ReadsEveryOption) {
  const auto options = parse({"--text",    "t.txt",
                              "--steps=7", "--seed",
                              "3",         "--batch",
                              "6",         "--context",
                              "32",        "--layers",
                              "2",         "--width",
                              "48",        "--heads",
                              "6",         "--lr",
                              "0.01",      "--warmup",
                              "0",         "--clip",
                              "0.5",       "--dtype",
                              "bf16",      "--verify",
                              "--json",    "--trace",
                              "a.json",    "--html",
                              "b.html",    "--generate",
                              "0",         "--delay-ranks",
                              "9",         "--dump-gradients",
                              "g",         "--broadcast-batch"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->text, "t.txt");
  EXPECT_EQ(options->steps, 7);
  EXPECT_EQ(options->seed, 3u);
  EXPECT_EQ(options->batch, 6);
  EXPECT_EQ(options->context, 32);
  EXPECT_EQ(options->layers, 2);
  EXPECT_EQ(options->width, 48);
  EXPECT_EQ(options->heads, 6);
  EXPECT_EQ(options->learning_rate, 0.01);
  EXPECT_EQ(options->warmup, 0);
  EXPECT_EQ(options->clip, 0.5);
  EXPECT_EQ(options->dtype, MUSTER_BF16);
  EXPECT_TRUE(options->verify);
  EXPECT_TRUE(options->json);
  EXPECT_EQ(options->trace, "a.json");
  EXPECT_EQ(options->html, "b.html");
  EXPECT_EQ(options->generate, 0);
  EXPECT_EQ(options->delay_ranks, 9u);
  EXPECT_EQ(options->dump_gradients, "g");
  EXPECT_TRUE(options->broadcast_batch);
  EXPECT_FALSE(options->check_batches);
  EXPECT_TRUE(parse({"--check-batches"})->check_batches);
}

TEST(TrainLmOptions, DelaysNobodyByDefault) {
  EXPECT_FALSE(parse({})->delay_ranks.has_value());
}

TEST(TrainLmOptions, RefusesMistakesInWords) {
  EXPECT_THAT(why({"--stepz", "3"}), HasSubstr("stepz"));
  EXPECT_THAT(why({"file"}), HasSubstr("file"));
  EXPECT_THAT(why({"--steps"}), HasSubstr("--steps needs a value"));
  EXPECT_THAT(why({"--steps", "0"}), HasSubstr("--steps"));
  EXPECT_THAT(why({"--steps", "many"}), HasSubstr("--steps: 'many' is not a whole number"));
  EXPECT_THAT(why({"--steps", "010"}), HasSubstr("'010' is not a whole number"));
  EXPECT_THAT(why({"--steps", "1", "--steps", "2"}), HasSubstr("--steps given twice"));
  EXPECT_THAT(why({"--seed", "-1"}), HasSubstr("--seed: '-1' is not a whole number without a sign"));
  EXPECT_THAT(why({"--text", ""}), HasSubstr("--text: the value is empty"));
  EXPECT_THAT(why({"--trace", ""}), HasSubstr("--trace: the value is empty"));
  EXPECT_THAT(why({"--layers", "1001"}), HasSubstr("1001 is not in the range 1 to 1000"));
  EXPECT_THAT(why({"--dtype", "f16"}), HasSubstr("--dtype is \"f16\"; it must be f32 or bf16"));
  EXPECT_THAT(why({"--width", "130"}), HasSubstr("--width 130 is not a multiple of --heads 4"));
  EXPECT_THAT(why({"--width", "12"}),
              HasSubstr("3 features of a head; the rotary position needs an even number"));
  EXPECT_THAT(why({"--lr", "0"}), HasSubstr("--lr must be a positive number"));
  EXPECT_THAT(why({"--lr", "nan"}), HasSubstr("--lr"));
  EXPECT_THAT(why({"--broadcast-batch", "--check-batches"}),
              HasSubstr("--check-batches has nothing to compare"));
  EXPECT_THAT(why({"--clip", "-1"}), HasSubstr("--clip: -1 is not in the range 0"));
  EXPECT_THAT(why({"--batch", "100000", "--context", "100000"}), HasSubstr("more than 2^31 elements"));
}

std::string mesh_error(const Options& options, std::int64_t dp_replicate, std::int64_t dp_shard,
                       std::int64_t tp) {
  Mesh mesh;
  mesh.dp_replicate.size = dp_replicate;
  mesh.dp_shard.size = dp_shard;
  mesh.tp.size = tp;
  const std::string fault = mesh_fault(options, mesh);
  return fault.empty() ? "(no error)" : fault;
}

TEST(TrainLmOptions, NamesTheOptionThatWasProbablyMeant) {
  EXPECT_THAT(why({"--step", "3"}),
              HasSubstr("unknown option --step; did you mean --steps? train_lm --help"));
  EXPECT_THAT(why({"--bacth=3"}), HasSubstr("did you mean --batch?"));
  EXPECT_THAT(why({"--colour", "3"}), HasSubstr("unknown option --colour; train_lm --help"));
}

TEST(TrainLmOptions, PointsToTheLauncherForItsOptions) {
  for (const std::vector<const char*>& words :
       {std::vector<const char*>{"--mesh", "tp=2"}, {"--mesh=tp=2"}, {"--steps", "3", "--mesh", "tp=2"}})
    EXPECT_THAT(why(words),
                HasSubstr("--mesh is an option of muster run, which starts the ranks: `muster run"));
  EXPECT_THAT(why({"-n", "4"}), HasSubstr("-n is an option of muster run"));
  EXPECT_THAT(why({"--mehs", "tp=2"}), HasSubstr("unknown option --mehs"));
}

TEST(TrainLmOptions, RefusesAMeshThatDoesNotSuit) {
  EXPECT_EQ(mesh_error({}, 2, 2, 2), "(no error)");
  EXPECT_EQ(mesh_error({}, 1, 3, 1),
            "--batch 32 is not a multiple of dp_replicate 1 x dp_shard 3 = 3; choose --batch 33");
  EXPECT_THAT(mesh_error({.heads = 4}, 1, 1, 8), HasSubstr("--heads 4 are fewer than tp 8"));
  EXPECT_THAT(mesh_error({.width = 400, .heads = 200}, 1, 1, 200), HasSubstr("choose a smaller tp"));
}

TEST(TrainLmOptions, HiddenIsEightThirdsOfTheWidthRoundedUp) {
  EXPECT_EQ(Options{.width = 128}.hidden(), 352);
  EXPECT_EQ(Options{.width = 12}.hidden(), 32);
  EXPECT_EQ(Options{.width = 96}.hidden(), 256);
}

}  // namespace
}  // namespace train_lm
