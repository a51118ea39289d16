// sharding_rank: one rank of a measurement of units or checkpoints, started by `muster run`.
//
//   muster run --private -n 8 --mesh dp_shard=8 -- sharding_rank wrapping --as list
#include "tests/bench/sharding/measurements.hpp"

#include <map>

#include <CLI/CLI.hpp>

namespace {

using namespace muster::bench::sharding;

const std::map<std::string, Wrapping> kWrappings = {
    {"root", Wrapping::kRoot}, {"alone", Wrapping::kAlone}, {"list", Wrapping::kList}};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One rank of a measurement of units or checkpoints.", "sharding_rank");
  app.option_defaults()->always_capture_default();
  app.require_subcommand(1);

  WrappingOptions wrapping;
  CLI::App* wrappings = app.add_subcommand("wrapping", "Units of a model by one of three wrappings");
  wrappings->add_option("--as", wrapping.wrapping, "root, alone or list")
      ->transform(CLI::CheckedTransformer(kWrappings));
  wrappings->add_option("--width", wrapping.width)->check(CLI::PositiveNumber);
  wrappings->add_option("--vocabulary", wrapping.vocabulary)->check(CLI::PositiveNumber);
  wrappings->add_option("--hidden", wrapping.hidden)->check(CLI::PositiveNumber);
  wrappings->add_option("--key-width", wrapping.key_width)->check(CLI::PositiveNumber);
  wrappings->add_option("--blocks", wrapping.blocks)->check(CLI::Range(1, 100));
  wrappings->add_option("--tokens", wrapping.tokens)->check(CLI::PositiveNumber);
  wrappings->add_option("--steps", wrapping.steps)->check(CLI::PositiveNumber);
  OverheadOptions overhead;
  CLI::App* overheads = app.add_subcommand("overhead", "Units that have next to nothing");
  overheads->add_option("--units", overhead.units)->check(CLI::Range(1, 1000));
  overheads->add_option("--steps", overhead.steps)->check(CLI::PositiveNumber);
  CheckpointOptions checkpoint;
  CLI::App* checkpoints = app.add_subcommand("checkpoint", "Save and load");
  checkpoints->add_option("--folder", checkpoint.folder, "Empty or not there")->required();
  checkpoints->add_option("--mib", checkpoint.mib, "Of all ranks together")->check(CLI::PositiveNumber);
  checkpoints->add_option("--turns", checkpoint.turns)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);

  Rank rank;
  if (wrappings->parsed()) measure_wrapping(rank, wrapping);
  if (overheads->parsed()) measure_overhead(rank, overhead);
  if (checkpoints->parsed()) measure_checkpoint(rank, checkpoint);
  rank.meet();
  return EXIT_SUCCESS;
}
