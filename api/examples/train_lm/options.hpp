// The command line of train_lm, checked. Nothing here calls the runtime.
#pragma once

#include "api/examples/train_lm/mesh.hpp"
#include "api/examples/training/errors.hpp"
#include "api/examples/training/parameter.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <muster/units.h>

namespace train_lm {

using training::Parameter;

// Bytes are the vocabulary.
inline constexpr std::int64_t kVocabulary = 256;

struct Options {
  std::string text = {};  // empty: the licence texts of the system
  std::int64_t steps = 600;
  std::uint64_t seed = 1;
  std::int64_t batch = 32;     // sequences per step, of all ranks together
  std::int64_t context = 128;  // bytes per sequence
  std::int64_t layers = 4;
  std::int64_t width = 128;
  std::int64_t heads = 4;
  double learning_rate = 3e-3;
  std::int64_t warmup = 40;
  double clip = 1.0;  // 0: gradients are not clipped
  muster_dtype dtype = MUSTER_F32;
  bool tied = false;                              // the head is the embedding
  std::uint64_t budget = 0;                       // bytes of whole parameters; 0: what prefetch needs
  std::uint32_t prefetch = 1;                     // how many units ahead parameters are gathered
  std::int32_t reshard = MUSTER_RESHARD_DEFAULT;  // what becomes of a unit after its forward
  bool share = false;            // ranks of a node have one whole copy of f32 parameters between them
  bool broadcast_batch = false;  // along tp one rank draws the batch, and the others receive it
  bool check_batches = false;  // of each step, not of the first one alone, that ranks along tp have the same
  bool verify = false;
  bool json = false;
  std::string trace = {};
  std::string html = {};
  std::int64_t generate = 200;
  std::optional<std::uint64_t> delay_ranks = {};
  std::string dump_gradients = {};
  std::string save = {};        // the folder of the run's checkpoints; empty: none
  std::int64_t save_every = 0;  // steps; 0: at the end alone
  std::uint32_t keep = 2;       // how many of the newest stay; 0: all
  std::string resume = {};      // the checkpoint that is the start, or the folder of which the newest is
  bool elastic = false;         // if ranks are lost, the others go on from the newest checkpoint

  // Inner features of the feed-forward part: 8/3 of the width, as usual with three matrices.
  std::int64_t hidden() const { return ceil_div(ceil_div(8 * width, 3), 32) * 32; }
};

// nullopt after --help has been printed. Throws UsageError.
std::optional<Options> parse_options(int argc, const char* const* argv);

// Why the mesh does not suit the options, with the values and what to change; empty if it does.
std::string mesh_fault(const Options& options, const Mesh& mesh);

// The parameters of the model by unit: embedding, each block, head and final norm. Norms come last in each
// unit. If embedding and head are tied, the final norm is with the embedding, and there is no head.
std::vector<std::vector<Parameter>> model_units(const Options& options);

}  // namespace train_lm
