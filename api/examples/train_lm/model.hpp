// Model: which kernels and collectives make one forward and one backward pass.
//
//   embedding -> [ norm -> attention -> + -> norm -> SwiGLU -> + ] x layers -> norm -> head -> loss
//
// Tensor parallelism: query, key, value, gate, up and head are cut by rows (each rank makes its features),
// output and down by columns (each rank makes a summand, and an all-reduce over tp makes the sum). So each
// block has two all-reduces forward, after output and down, and two backward, of the gradients that enter
// query/key/value and gate/up. Embedding and head are cut along the vocabulary; logits are never gathered in
// training.
#pragma once

#include "api/examples/train_lm/options.hpp"
#include "api/examples/train_lm/unit.hpp"

#include <span>
#include <vector>

namespace train_lm {

// Owns    the activations of one pass and the gradients on their way back.
// Thread  one.
// Bound   rows x context tokens.
// Fails   with RuntimeError.
class Model {
 public:
  // `rows`: sequences of this rank. `units`: as model_units() lists them; they outlive the model.
  Model(Runtime& runtime, const Layout& layout, const Options& options, std::span<Unit> units,
        Workspace& workspace, std::int64_t rows);

  // Recorded in this order; loss() and backward() may be left out.
  void forward(Program& program);   // leaves logits() of this rank's part of the vocabulary
  void loss(Program& program);      // leaves the mean over the global batch in mean_loss()
  void backward(Program& program);  // leaves averaged gradients in the units, once joined

  const muster_tensor& ids() const { return ids_; }          // I32 [rows x context]
  const muster_tensor& targets() const { return targets_; }  // likewise
  const muster_tensor& logits() const { return logits_; }
  const muster_tensor& mean_loss() const { return mean_loss_; }  // F32 [1]
  Mark loss_ready() const { return loss_ready_; }
  std::int64_t vocab_offset() const { return units_.back().first_row(0); }

 private:
  // What the forward pass of a block leaves for its backward pass.
  struct Block {
    muster_tensor normed, normed_rstd, qkv, attended, lse;
    muster_tensor middle;  // the residual stream between attention and feed-forward
    muster_tensor middle_normed, middle_rstd, gate_up, activated;
  };

  muster_tensor tensor(muster_dtype dtype, std::int64_t rows, std::int64_t columns = 0);
  muster_tensor heads(const muster_tensor& matrix, std::int64_t first, std::int64_t count) const;
  Block make_block();
  Mark sum_over_tp(Program& program, const muster_tensor& partial);
  void embed(Program& program);
  void block_forward(Program& program, std::size_t layer);
  void head_forward(Program& program);
  void head_backward(Program& program);
  void attention_backward(Program& program, std::size_t layer);
  void mlp_backward(Program& program, std::size_t layer);

  Runtime& runtime_;
  Layout layout_;
  std::span<Unit> units_;
  Workspace& workspace_;
  muster_dtype dtype_;
  std::int64_t rows_, context_, width_, head_width_, heads_;  // heads_: of this tp rank
  std::int64_t hidden_, vocabulary_;                          // likewise

  muster_tensor ids_, targets_;
  std::vector<muster_tensor> stream_;  // the residual stream before each block, and after the last
  std::vector<Block> blocks_;
  muster_tensor normed_, normed_rstd_, logits_;
  muster_tensor row_max_, stats_, losses_, mean_loss_;
  Mark loss_ready_;
  // Gradients. One of each is enough, because kernels run one after the other.
  muster_tensor d_stream_, d_normed_, d_qkv_, d_attended_, d_gate_up_, d_activated_;
};

}  // namespace train_lm
