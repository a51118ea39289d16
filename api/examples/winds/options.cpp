#include "api/examples/winds/options.hpp"

#include "api/examples/training/command_line.hpp"

#include <cmath>
#include <limits>

#include <CLI/CLI.hpp>

namespace winds {

using namespace training;

namespace {

constexpr const char* kDescription =
    "Learns the winds of a real atmosphere from its geopotential, on a field that is cut over ranks.\n"
    "Start it with:  muster run -n 8 --mesh domain=4,dp_replicate=2 -- winds --field FILE";

constexpr const char* kFooter =
    "Exit status: 0 done, 1 a file could not be written, 2 wrong option, field, mesh or MUSTER_ variable, "
    "3 the runtime reported a failure (a lost peer, no daemon).";

void add_files(CLI::App& app, Options& o) {
  app.add_option(
         "--field", o.field,
         "Months of u, v and z on three levels each: float32 [months, 9, latitudes, longitudes] as .npy; "
         "default: two months of vortices")
      ->check(empty_fault);
  app.add_option("--trace", o.trace, "Write the last steps of all ranks as Chrome/Perfetto JSON")
      ->check(empty_fault);
  app.add_option("--html", o.html, "Write a page with maps of the winds, the losses and the lanes")
      ->check(empty_fault);
  app.add_option("--save", o.save, "Folder for checkpoints, of which each is a folder in it")
      ->check(empty_fault);
  app.add_option("--save-every", o.save_every, "Steps from one checkpoint to the next; 0: at the end alone")
      ->check(in_range(std::int64_t{0}, std::int64_t{1} << 30));
  app.add_option("--keep", o.keep, "How many of the newest checkpoints stay; 0: all")
      ->check(in_range(std::uint32_t{0}, std::uint32_t{1} << 20));
  app.add_option("--resume", o.resume,
                 "Go on from the newest checkpoint in this folder, or from this one, on any mesh and cut")
      ->check(empty_fault);
}

void add_training(CLI::App& app, Options& o, std::string& cut) {
  const auto count = in_range(std::int64_t{1}, std::int64_t{1} << 30);
  const auto seed = in_range(std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max());
  const auto real = in_range(0.0, std::numeric_limits<double>::max());
  app.add_option("--month", o.month,
                 "Which month of the field is learned, from 0 on; the next one judges, or the first")
      ->check(in_range(std::int64_t{0}, std::int64_t{1} << 30));
  app.add_option("--steps", o.steps, "Optimiser steps")->check(count);
  app.add_option("--seed", o.seed, "Of weights and samples")->check(seed);
  app.add_option("--batch", o.batch,
                 "Samples of a step, of all ranks together; 0: one for each group of ranks that share a "
                 "field, but at least two")
      ->check(in_range(std::int64_t{0}, std::int64_t{1} << 16));
  app.add_option("--width", o.width,
                 "Channels of the finest level, a multiple of 4; coarser ones have 2 and 4 times as many")
      ->check(in_range(std::int64_t{4}, std::int64_t{1024}));
  app.add_option("--cut", cut,
                 "How `domain` cuts the field: ROWSxCOLUMNS of ranks; default: all of them rows");
  app.add_option("--lr", o.learning_rate,
                 "Learning rate after the warm-up; it falls to a tenth along a cosine")
      ->check(real);
  app.add_option("--warmup", o.warmup, "Steps of linear warm-up")
      ->check(in_range(std::int64_t{0}, std::int64_t{1} << 30));
  app.add_option("--clip", o.clip, "Largest norm of the gradient; 0: no limit")->check(real);
  app.add_option("--prefetch", o.prefetch, "How many layers ahead parameters are gathered")
      ->check(in_range(std::uint32_t{0}, std::uint32_t{16}));
  app.add_flag(
      "--recompute", o.recompute,
      "Keep the inputs of layers alone, and compute the rest again in the backward, with their ghosts");
  app.add_flag("--scatter", o.scatter,
               "The first rank of each field reads its samples, in chunks, and scatters them; else each "
               "reads its part");
  app.add_flag("--verify", o.verify,
               "Train again on rank 0 alone and report the largest difference of the losses");
  app.add_flag("--json", o.json, "End the standard output of rank 0 with one line of JSON");
  app.add_option("--delay-ranks", o.delay_ranks,
                 "Sleep now and then between submissions, as this seed says (for tests)")
      ->check(seed);
}

[[noreturn]] void refuse(const std::string& message) {
  throw UsageError(message);
}

RankGrid cut_of(const std::string& text) {
  const std::size_t x = text.find('x');
  const std::string rows = text.substr(0, x), columns = x == std::string::npos ? "" : text.substr(x + 1);
  if (!number_fault<std::int32_t>(rows, 1, 65536).empty() ||
      !number_fault<std::int32_t>(columns, 1, 65536).empty())
    refuse("--cut is \"" + text + "\"; it must be ROWSxCOLUMNS of ranks, such as 2x2");
  return {std::stoi(rows), std::stoi(columns)};
}

void check(const Options& o) {
  if (o.width % 4 != 0) refuse("--width " + text_of(o.width) + " is not a multiple of 4");
  if (!std::isfinite(o.learning_rate) || o.learning_rate <= 0) refuse("--lr must be a positive number");
  if (!std::isfinite(o.clip) || o.clip < 0) refuse("--clip must be 0 (no limit) or a positive number");
  if (o.save.empty() && o.save_every > 0) refuse("--save-every needs --save, the folder for checkpoints");
  if (!o.resume.empty() && o.verify)
    refuse("--verify trains again from the start, so it does not go with --resume");
  if (o.scatter && o.cut && o.cut->columns > 1)
    refuse("--scatter sends whole rows, so it does not go with a --cut of columns");
}

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options options;
  std::string cut;
  CLI::App app(kDescription, "winds");
  app.footer(kFooter);
  app.option_defaults()->always_capture_default();
  add_files(app, options);
  add_training(app, options, cut);
  if (!parse(app, argc, argv)) return std::nullopt;
  if (!cut.empty()) options.cut = cut_of(cut);
  check(options);
  return options;
}

}  // namespace winds
