#include "api/examples/train_lm/options.hpp"

#include "api/examples/training/command_line.hpp"

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include <CLI/CLI.hpp>

namespace train_lm {

using namespace training;

namespace {

constexpr const char* kDescription =
    "Trains a byte-level language model on the ranks of one Muster job.\n"
    "Start it with:  muster run -n 8 --mesh dp_replicate=2,dp_shard=2,tp=2 -- train_lm";

constexpr const char* kFooter =
    "Exit status: 0 done, 1 a file could not be written, 2 wrong option, text, mesh or MUSTER_ variable, "
    "3 the runtime reported a failure (a lost peer, no daemon).";

void add_files(CLI::App& app, Options& o) {
  app.add_option("--text", o.text, "File to learn; default: the licence texts in /usr/share/common-licenses")
      ->check(empty_fault);
  app.add_option("--trace", o.trace, "Write the last steps of all ranks as Chrome/Perfetto JSON")
      ->check(empty_fault);
  app.add_option("--html", o.html, "Write a page with the losses and a timeline of the lanes")
      ->check(empty_fault);
  app.add_option("--dump-gradients", o.dump_gradients,
                 "Write the gradient of the first step, before clipping, to FILE.rankN: one line for each "
                 "parameter with "
                 "its name, first row, rows, first column, columns, values")
      ->check(empty_fault);
}

void add_checkpoints(CLI::App& app, Options& o) {
  app.add_option("--save", o.save, "Folder for checkpoints, of which each is a folder in it")
      ->check(empty_fault);
  app.add_option("--save-every", o.save_every, "Steps from one checkpoint to the next; 0: at the end alone")
      ->check(in_range(std::int64_t{0}, std::int64_t{1} << 30));
  app.add_option("--keep", o.keep, "How many of the newest checkpoints stay; 0: all")
      ->check(in_range(std::uint32_t{0}, std::uint32_t{1} << 20));
  app.add_option(
         "--resume", o.resume,
         "Go on from the newest checkpoint in this folder, or from this one, on any mesh; from the start if "
         "there is none")
      ->check(empty_fault);
  app.add_flag("--elastic", o.elastic,
               "If ranks are lost, the others go on from the newest checkpoint on a smaller mesh; start it "
               "with muster run --elastic");
}

void add_options(CLI::App& app, Options& o, std::string& dtype, std::string& reshard) {
  const auto count = in_range(std::int64_t{1}, std::int64_t{1} << 30);
  const auto seed = in_range(std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max());
  const auto real = in_range(0.0, std::numeric_limits<double>::max());
  app.add_option("--steps", o.steps, "Optimiser steps")->check(count);
  app.add_option("--seed", o.seed, "Of weights, batches and sampling")->check(seed);
  app.add_option("--batch", o.batch, "Sequences per step, of all ranks together")->check(count);
  app.add_option("--context", o.context, "Bytes per sequence")->check(count);
  app.add_option("--layers", o.layers, "Transformer blocks")->check(in_range(1, 1000));
  app.add_option("--width", o.width, "Features of a token")->check(in_range(2, 65536));
  app.add_option("--heads", o.heads, "Attention heads")->check(in_range(1, 65536));
  app.add_option("--lr", o.learning_rate,
                 "Learning rate after the warm-up; it falls to a tenth along a cosine")
      ->check(real);
  app.add_option("--warmup", o.warmup, "Steps of linear warm-up")->check(in_range(0, 1 << 30));
  app.add_option("--clip", o.clip, "Largest norm of the gradient; 0: no limit")->check(real);
  app.add_option("--dtype", dtype,
                 "Of activations and gathered weights: f32 or bf16; master weights are f32");
  app.add_flag("--tied", o.tied, "Embedding and head are one parameter");
  app.add_option("--budget", o.budget, "Bytes of whole parameters on a rank; 0: what --prefetch needs")
      ->check(in_range(std::uint64_t{0}, std::uint64_t{1} << 60));
  app.add_option("--prefetch", o.prefetch, "How many units ahead parameters are gathered")
      ->check(in_range(std::uint32_t{0}, std::uint32_t{16}));
  app.add_option("--reshard", reshard,
                 "After a unit's forward: always, never, or the number of ranks that keep it between them");
  app.add_flag("--share", o.share,
               "One whole copy of f32 parameters for all ranks of a node; nothing is gathered");
  app.add_flag("--broadcast-batch", o.broadcast_batch,
               "Along tp the first rank draws the batch, and the others receive it; else each draws it by "
               "itself, and they compare that of the first step");
  app.add_flag("--check-batches", o.check_batches, "Compare the batch of every step along tp");
  app.add_flag("--verify", o.verify,
               "Train again on rank 0 alone and report the largest difference of the losses");
  app.add_flag("--json", o.json, "End the standard output of rank 0 with one line of JSON");
  app.add_option("--generate", o.generate, "Bytes of text to sample at the end")->check(in_range(0, 1 << 20));
  app.add_option("--delay-ranks", o.delay_ranks,
                 "Sleep now and then between submissions, as this seed says (for tests)")
      ->check(seed);
}

[[noreturn]] void refuse(const std::string& message) {
  throw UsageError(message);
}

void check(const Options& o) {
  if (o.width % o.heads != 0)
    refuse("--width " + text_of(o.width) + " is not a multiple of --heads " + text_of(o.heads));
  if (o.width / o.heads % 2 != 0)
    refuse("--width " + text_of(o.width) + " / --heads " + text_of(o.heads) + " = " +
           text_of(o.width / o.heads) + " features of a head; the rotary position needs an even number");
  if (o.broadcast_batch && o.check_batches)
    refuse("--check-batches has nothing to compare with --broadcast-batch; leave one of them out");
  if (!std::isfinite(o.learning_rate) || o.learning_rate <= 0) refuse("--lr must be a positive number");
  if (!std::isfinite(o.clip) || o.clip < 0) refuse("--clip must be 0 (no limit) or a positive number");
  if (o.save.empty() && o.save_every > 0) refuse("--save-every needs --save, the folder for checkpoints");
  if (o.elastic && o.save.empty())
    refuse("--elastic needs --save, the folder from whose newest checkpoint the others go on");
  if (o.elastic && o.verify) refuse("--verify compares whole runs, so it does not go with --elastic");
  if (!o.resume.empty() && o.verify)
    refuse("--verify trains again from the start, so it does not go with --resume");
  // Bounds one activation: kernels index with 64 bits, but a small machine has not so much memory.
  if (o.batch > (std::int64_t{1} << 31) / o.context / o.width)
    refuse("--batch " + text_of(o.batch) + " x --context " + text_of(o.context) + " x --width " +
           text_of(o.width) + " is more than 2^31 elements; choose smaller sizes");
}

std::int32_t reshard_of(const std::string& text) {
  if (text == "always") return MUSTER_RESHARD_DEFAULT;
  if (text == "never") return MUSTER_RESHARD_NEVER;
  const std::string fault = number_fault(text, 1, 65536);
  if (!fault.empty()) refuse("--reshard is \"" + text + "\"; it must be always, never, or a number of ranks");
  return static_cast<std::int32_t>(std::stol(text));
}

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options options;
  std::string dtype = "f32";
  std::string reshard = "always";
  CLI::App app(kDescription, "train_lm");
  app.footer(kFooter);
  app.option_defaults()->always_capture_default();
  add_files(app, options);
  add_checkpoints(app, options);
  add_options(app, options, dtype, reshard);
  if (!parse(app, argc, argv)) return std::nullopt;
  const std::map<std::string, muster_dtype> dtypes{{"f32", MUSTER_F32}, {"bf16", MUSTER_BF16}};
  const auto found = dtypes.find(dtype);
  if (found == dtypes.end()) refuse("--dtype is \"" + dtype + "\"; it must be f32 or bf16");
  options.dtype = found->second;
  options.reshard = reshard_of(reshard);
  check(options);
  return options;
}

std::string mesh_fault(const Options& o, const Mesh& mesh) {
  const std::int64_t tp = mesh.tp.size;
  if (o.batch % mesh.dp_size() != 0)
    return "--batch " + text_of(o.batch) + " is not a multiple of dp_replicate " +
           text_of(mesh.dp_replicate.size) + " x dp_shard " + text_of(mesh.dp_shard.size) + " = " +
           text_of(mesh.dp_size()) + "; choose --batch " +
           text_of(ceil_div(o.batch, mesh.dp_size()) * mesh.dp_size());
  if (o.context % mesh.cp.size != 0)
    return "--context " + text_of(o.context) + " is not a multiple of cp " + text_of(mesh.cp.size) +
           "; choose --context " + text_of(ceil_div(o.context, mesh.cp.size) * mesh.cp.size);
  const std::int64_t shards = mesh.dp_shard.size * mesh.cp.size;
  if (o.reshard > 0 && (shards % o.reshard != 0 || (tp > 1 && o.reshard > 1 && o.reshard < shards)))
    return "--reshard " + text_of(o.reshard) + " must divide dp_shard " + text_of(mesh.dp_shard.size) +
           " x cp " + text_of(mesh.cp.size) + ", and needs tp 1";
  if (o.heads < tp)
    return "--heads " + text_of(o.heads) + " are fewer than tp " + text_of(tp) + ": a head is not cut";
  for (const std::int64_t cut : {o.hidden(), kVocabulary})
    if (ceil_chunk(cut, tp, tp - 1).count == 0)
      return "tp " + text_of(tp) + " leaves the last rank nothing of " + text_of(cut) +
             " features; choose a smaller tp";
  return {};
}

std::vector<std::vector<Parameter>> model_units(const Options& o) {
  const std::int64_t d = o.width;
  const std::int64_t h = o.hidden();
  const double inner = 1.0 / std::sqrt(static_cast<double>(d));
  // The more blocks add to the residual stream, the smaller each summand starts (Radford et al. 2019, GPT-2).
  const double outward = inner / std::sqrt(2.0 * static_cast<double>(o.layers));
  std::vector<std::vector<Parameter>> units;
  units.push_back({{"embedding", kVocabulary, d, Cut::kRows, o.tied ? 0.5 * inner : 0.5}});
  if (o.tied) units.back().push_back({"final_norm", d, 1, Cut::kNone, 0.0});
  for (std::int64_t layer = 0; layer < o.layers; ++layer) {
    const std::string block = "block" + text_of(layer) + ".";
    const std::int64_t head = d / o.heads;
    units.push_back({{block + "query", d, d, Cut::kRows, inner, head},
                     {block + "key", d, d, Cut::kRows, inner, head},
                     {block + "value", d, d, Cut::kRows, inner, head},
                     {block + "output", d, d, Cut::kColumns, outward, head},
                     {block + "gate", h, d, Cut::kRows, inner},
                     {block + "up", h, d, Cut::kRows, inner},
                     {block + "down", d, h, Cut::kColumns, outward},
                     {block + "attention_norm", d, 1, Cut::kNone, 0.0},
                     {block + "mlp_norm", d, 1, Cut::kNone, 0.0}});
  }
  if (!o.tied)
    units.push_back(
        {{"head", kVocabulary, d, Cut::kRows, 0.5 * inner}, {"final_norm", d, 1, Cut::kNone, 0.0}});
  return units;
}

}  // namespace train_lm
