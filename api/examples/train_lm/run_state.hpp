// RunState: a checkpoint's record of its run. The step says which batch is next too, since batches depend
// on nothing else.
#pragma once

#include "api/examples/train_lm/options.hpp"
#include "api/examples/train_lm/text.hpp"
#include "api/examples/training/checkpoint.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace train_lm {

using training::SavedState;

// All that a run must have in common with the one that it goes on from. Older checkpoints end before
// text_hash.
//
// Owns    its bytes, as they are saved. Thread  a value; any.
// Bound   fixed. Fails   next_step: UsageError.
class RunState final : public SavedState {
 public:
  RunState(const Options& options, const Text& text);
  std::vector<std::byte> bytes(std::int64_t next_step) const override;
  std::int64_t next_step(std::span<const std::byte> saved, const std::string& shown) const override;

 private:
  struct Content {
    std::int64_t next_step;
    std::uint64_t seed;
    std::int64_t batch, context;
    std::uint64_t text_bytes;
    std::uint64_t text_hash;
    std::int64_t layers, width, heads, vocabulary;
    std::int64_t tied;   // 1 or 0
    std::int64_t dtype;  // of activations and gathered weights
  };
  static_assert(sizeof(Content) == 96 && offsetof(Content, text_hash) == 40);
  void check_same_batches(const Content& saved, const std::string& shown) const;
  void check_same_run(const Content& saved, const std::string& shown) const;

  Content own_{};
};

}  // namespace train_lm
