#include "api/examples/train_lm/run_state.hpp"

#include <cstring>

namespace train_lm {

using namespace training;

namespace {

std::string dtype_text(std::int64_t dtype) {
  return dtype == MUSTER_F32 ? "f32" : dtype == MUSTER_BF16 ? "bf16" : std::to_string(dtype);
}

}  // namespace

RunState::RunState(const Options& options, const Text& text)
    : own_{.next_step = 0,
           .seed = options.seed,
           .batch = options.batch,
           .context = options.context,
           .text_bytes = text.size(),
           .text_hash = text.hash(),
           .layers = options.layers,
           .width = options.width,
           .heads = options.heads,
           .vocabulary = kVocabulary,
           .tied = options.tied ? 1 : 0,
           .dtype = options.dtype} {}

std::vector<std::byte> RunState::bytes(std::int64_t next_step) const {
  Content content = own_;
  content.next_step = next_step;
  std::vector<std::byte> bytes(sizeof content);
  std::memcpy(bytes.data(), &content, sizeof content);
  return bytes;
}

std::int64_t RunState::next_step(std::span<const std::byte> saved, const std::string& shown) const {
  Content content{};
  const bool older = saved.size() == offsetof(Content, text_hash);
  if (saved.size() != sizeof content && !older) throw UsageError(shown + " was not made by train_lm");
  std::memcpy(&content, saved.data(), saved.size());
  check_same_batches(content, shown);
  if (!older) check_same_run(content, shown);
  return content.next_step;
}

// Batches depend on these.
void RunState::check_same_batches(const Content& saved, const std::string& shown) const {
  check_same("--seed", saved.seed, own_.seed, shown);
  check_same("--batch", saved.batch, own_.batch, shown);
  check_same("--context", saved.context, own_.context, shown);
  check_same("a text of bytes", saved.text_bytes, own_.text_bytes, shown);
}

void RunState::check_same_run(const Content& saved, const std::string& shown) const {
  check_same("a text of the hash", saved.text_hash, own_.text_hash, shown);
  check_same("--layers", saved.layers, own_.layers, shown);
  check_same("--width", saved.width, own_.width, shown);
  check_same("--heads", saved.heads, own_.heads, shown);
  check_same("a vocabulary of", saved.vocabulary, own_.vocabulary, shown);
  if (saved.tied != own_.tied)
    refuse_made_otherwise(shown, "--tied", saved.tied != 0 ? "given" : "left out",
                          own_.tied != 0 ? "it given" : "it left out");
  if (saved.dtype != own_.dtype)
    refuse_made_otherwise(shown, "--dtype", dtype_text(saved.dtype), dtype_text(own_.dtype));
}

}  // namespace train_lm
