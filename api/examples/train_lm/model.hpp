// Model: which kernels and collectives make one forward and one backward pass.
//
//   embedding -> [ norm -> attention -> + -> norm -> SwiGLU -> + ] x layers -> norm -> head -> loss
//
// Each part in brackets or between arrows is a program of its own, replayed between the calls that begin and
// end the use of its unit. If they are tied, embedding and head are one parameter, in a unit that is in use
// from the first to the last.
//
// Tensor parallelism: query, key, value, gate, up and head are cut by rows (each rank makes its features),
// output and down by columns (each rank makes a summand, and an all-reduce over tp makes the sum). So each
// block has two all-reduces forward, after output and down, and two backward, of the gradients that enter
// query/key/value and gate/up. Embedding and head are cut along the vocabulary; logits are never gathered in
// training.
//
// Context parallelism: each rank has some positions of each sequence. Keys and values of all positions are
// gathered before attention, and their gradients are scattered after it.
#pragma once

#include "api/examples/train_lm/options.hpp"
#include "api/examples/training/units.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace train_lm {

using training::Mark;
using training::Program;
using training::Runtime;
using training::Units;

// Owns    the activations of one pass and the gradients on their way back.
// Thread  one.
// Bound   rows x context tokens.
// Fails   with RuntimeError.
class Model {
 public:
  // `rows`: sequences of this rank. The units outlive the model, and have begun a step.
  Model(Runtime& runtime, const Mesh& mesh, const Options& options, Units& units, std::int64_t rows);

  // Replayed in this order, in a step of the units; loss() and backward() may be left out.
  void forward();                // leaves logits() of this rank's part of the vocabulary
  void loss();                   // leaves the mean over the global batch in mean_loss(), at loss_ready()
  void backward();               // leaves averaged gradients in the units, once their step has ended
  std::size_t commands() const;  // starts of one pass, but for those of the units

  const muster_tensor& ids() const { return ids_; }          // I32 [rows x context]
  const muster_tensor& targets() const { return targets_; }  // likewise
  const muster_tensor& logits() const { return logits_; }
  const muster_tensor& mean_loss() const { return mean_loss_; }  // F32 [1]
  muster_point loss_ready() const { return loss_.point(loss_reduced_); }
  std::int64_t vocab_offset() const { return units_.first_row(head_unit(), kTable); }

 private:
  static constexpr std::size_t kTable = 0;  // embedding and head, in their units
  // What the forward pass of a block leaves for its backward pass.
  struct Block {
    muster_tensor normed, normed_rstd, qkv, attended, lse;
    muster_tensor keys_values;  // of all positions, with context parallelism
    muster_tensor middle;       // the residual stream between attention and feed-forward
    muster_tensor middle_normed, middle_rstd, gate_up, activated;
  };

  muster_tensor tensor(muster_dtype dtype, std::int64_t rows, std::int64_t columns = 0);
  muster_tensor heads(const muster_tensor& matrix, std::int64_t first, std::int64_t count) const;
  Block make_block();
  std::size_t block_unit(std::size_t layer) const { return layer + 1; }
  std::size_t head_unit() const { return tied_ ? 0 : units_.count() - 1; }
  muster_tensor block_weight(std::size_t layer, std::size_t first, std::size_t count = 1) const {
    return units_.weight(block_unit(layer), first, count);
  }
  muster_tensor block_gradient(std::size_t layer, std::size_t first, std::size_t count = 1) const {
    return units_.gradient(block_unit(layer), first, count);
  }
  // Heads of keys and values of all positions, once gathered.
  muster_tensor all_heads(const muster_tensor& keys_values, std::int64_t first) const;
  muster_blocks context_blocks() const;

  Mark sum_over_tp(Program& program, const muster_tensor& partial);
  void gather_context(Program& program, const Block& block);
  void scatter_context(Program& program);
  void record_embedding();
  void record_block_forward(std::size_t layer);
  void record_head();
  void record_loss();
  void record_head_backward();
  void record_mlp_backward(Program& program, std::size_t layer);
  void record_attention_backward(Program& program, std::size_t layer);

  Runtime& runtime_;
  Mesh mesh_;
  Units& units_;
  bool tied_;
  muster_dtype dtype_;
  std::int64_t rows_, context_, positions_;  // positions_: of each sequence, on this cp rank
  std::int64_t width_, head_width_, heads_;  // heads_: of this tp rank
  std::int64_t hidden_, vocabulary_;         // likewise

  muster_tensor ids_, targets_;
  std::vector<muster_tensor> stream_;  // the residual stream before each block, and after the last
  std::vector<Block> blocks_;
  muster_tensor normed_, normed_rstd_, logits_;
  muster_tensor row_max_, stats_, losses_, mean_loss_;
  Mark embedded_, loss_reduced_;
  // Gradients. One of each is enough, because kernels run one after the other.
  muster_tensor d_stream_, d_normed_, d_qkv_, d_attended_, d_gate_up_, d_activated_;
  // With context parallelism: keys and values of this rank's positions without gaps, and gradients.
  muster_tensor own_keys_values_, d_keys_values_;
  std::vector<std::uint32_t> context_counts_;  // where the positions of each cp rank lie among all
  std::vector<muster_piece> context_pieces_;

  Program embedding_, head_, loss_, head_backward_, embedding_backward_;
  std::vector<Program> block_forward_, block_backward_;
};

}  // namespace train_lm
