#include "api/examples/train_lm/generate.hpp"

#include "api/examples/training/random.hpp"

#include <algorithm>
#include <cmath>

namespace train_lm {

using namespace training;

namespace {

constexpr double kTemperature = 0.8;

// Gathers the last token's logits as f32 from all tp ranks to each of them: the vocabulary is small.
void gather_last_logits(Program& program, const Mesh& mesh, const Model& model, const Buffer& target) {
  muster_tensor last = model.logits();
  last.offset_bytes +=
      static_cast<std::uint64_t>((last.size[0] - 1) * last.stride[0]) * muster_dtype_bytes(last.dtype);
  last.size[0] = 1;
  const std::uint64_t offset = static_cast<std::uint64_t>(model.vocab_offset()) * sizeof(float);
  const muster_tensor own = muster_view2(target.handle, offset, MUSTER_F32, 1, last.size[1]);
  program.kernel(muster_copy(last, own));

  std::vector<std::uint64_t> counts;
  for (std::int64_t rank = 0; rank < mesh.tp.size; ++rank)
    counts.push_back(static_cast<std::uint64_t>(ceil_chunk(kVocabulary, mesh.tp.size, rank).count));
  muster_collective gather = all_gather(mesh.tp.group, own, {target.handle, 0});
  gather.target_blocks.counts = counts.data();
  program.join(program.collective(MUSTER_LANE_SMALL, gather));
  // The last position is the last cp rank's.
  program.join(program.collective(MUSTER_LANE_SMALL,
                                  broadcast(mesh.cp.group, static_cast<std::int32_t>(mesh.cp.size - 1),
                                            muster_view1(target.handle, 0, MUSTER_F32, kVocabulary))));
}

}  // namespace

std::size_t draw(std::span<const float> logits, double temperature, double uniform) {
  const double top = *std::ranges::max_element(logits);
  const auto weight = [&](float logit) { return std::exp((static_cast<double>(logit) - top) / temperature); };
  double total = 0.0;
  for (const float logit : logits) total += weight(logit);
  double rest = uniform * total;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    rest -= weight(logits[i]);
    if (rest < 0.0) return i;
  }
  return logits.size() - 1;
}

std::string generate(Runtime& runtime, const Mesh& mesh, const Options& options, const Text& text,
                     Trainer& trainer) {
  Units& units = trainer.units();
  units.begin_step(trainer.updated());
  Model model(runtime, mesh, options, units, 1);
  const Buffer ids = runtime.allocate(static_cast<std::uint64_t>(options.context) * sizeof(std::int32_t));
  const Buffer logits = runtime.allocate(static_cast<std::uint64_t>(kVocabulary) * sizeof(float));
  const Buffer out = runtime.allocate(logits.bytes);

  const Chunk positions = mesh.positions(options.context);
  Program load(runtime);
  load.kernel(
      muster_copy(muster_view1(ids.handle, static_cast<std::uint64_t>(positions.begin) * sizeof(std::int32_t),
                               MUSTER_I32, positions.count),
                  model.ids()));
  Program read(runtime);
  gather_last_logits(read, mesh, model, logits);
  // A kernel behind the gather, so that the point of the last kernel is the end of all work.
  read.kernel(muster_copy(muster_view1(logits.handle, 0, MUSTER_F32, kVocabulary),
                          muster_view1(out.handle, 0, MUSTER_F32, kVocabulary)));

  const CounterRandom random(options.seed, "sample");
  std::string window(text.prompt().begin(), text.prompt().end());
  std::string generated;
  for (std::int64_t i = 0; i < options.generate; ++i) {
    std::ranges::transform(window, ids.as<std::int32_t>().begin(),
                           [](char c) { return static_cast<unsigned char>(c); });
    if (i > 0) units.begin_step(MUSTER_POINT_NONE, true);
    load.replay();
    model.forward();
    units.end_step(runtime.newest(MUSTER_LANE_COMPUTE));
    runtime.wait(read.replay());
    const std::size_t next =
        draw(out.as<const float>(), kTemperature, random.uniform(static_cast<std::uint64_t>(i)));
    generated.push_back(static_cast<char>(next));
    window.erase(window.begin());
    window.push_back(static_cast<char>(next));
  }
  return generated;
}

}  // namespace train_lm
