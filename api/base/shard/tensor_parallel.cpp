#include "api/base/shard/tensor_parallel.hpp"

#include "api/base/pattern.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace muster::shard {
namespace {

constexpr muster_tp_rule rule(const char* pattern, muster_tp_style style) {
  return {pattern, style, MUSTER_SPLIT_CEIL, 0, nullptr, 0, 0};
}

constexpr std::array kLlama{
    // torchtitan, Meta
    rule("*tok_embeddings.weight", MUSTER_TP_VOCABULARY),
    rule("*attention.wq.*", MUSTER_TP_COLUMN),
    rule("*attention.wk.*", MUSTER_TP_COLUMN),
    rule("*attention.wv.*", MUSTER_TP_COLUMN),
    rule("*attention.wo.*", MUSTER_TP_ROW),
    rule("*feed_forward.w1.*", MUSTER_TP_COLUMN),
    rule("*feed_forward.w3.*", MUSTER_TP_COLUMN),
    rule("*feed_forward.w2.*", MUSTER_TP_ROW),
    rule("output.weight", MUSTER_TP_COLUMN),
    // Hugging Face
    rule("*embed_tokens.weight", MUSTER_TP_VOCABULARY),
    rule("*self_attn.q_proj.*", MUSTER_TP_COLUMN),
    rule("*self_attn.k_proj.*", MUSTER_TP_COLUMN),
    rule("*self_attn.v_proj.*", MUSTER_TP_COLUMN),
    rule("*self_attn.o_proj.*", MUSTER_TP_ROW),
    rule("*mlp.gate_proj.*", MUSTER_TP_COLUMN),
    rule("*mlp.up_proj.*", MUSTER_TP_COLUMN),
    rule("*mlp.down_proj.*", MUSTER_TP_ROW),
    rule("lm_head.weight", MUSTER_TP_COLUMN),
    // norms of all of them, so that they are not listed as unknown
    rule("*norm.weight", MUSTER_TP_REPLICATE),
    rule("*norm.bias", MUSTER_TP_REPLICATE),
    rule("*layernorm.weight", MUSTER_TP_REPLICATE),
};

Result<Split> split_of(const muster_tp_rule& rule) {
  if (rule.fused_count > 0 && rule.fused == nullptr)
    return fail(Code::kBadArgument, "rule \"{}\": fused is NULL, but has {} entries", rule.pattern,
                rule.fused_count);
  std::vector<std::int64_t> fused(rule.fused, rule.fused + rule.fused_count);
  std::optional<Split> split;
  if (rule.split == MUSTER_SPLIT_CEIL) split = Split::ceil();
  if (rule.split == MUSTER_SPLIT_BALANCED) split = Split::balanced();
  if (rule.split == MUSTER_SPLIT_ALIGNED) split = Split::aligned(rule.grain);
  if (!split)
    return fail(Code::kBadArgument,
                "rule \"{}\": split is {}; MUSTER_SPLIT_CEIL, BALANCED and ALIGNED are possible",
                rule.pattern, rule.split);
  if (fused.empty()) return *std::move(split);
  return Split::fused(*std::move(split), std::move(fused));
}

}  // namespace

std::span<const muster_tp_rule> llama_rules() {
  return kLlama;
}

std::optional<std::size_t> rule_of(std::span<const muster_tp_rule> rules, std::string_view name) {
  for (std::size_t i = 0; i < rules.size(); ++i)
    if (fits_pattern(rules[i].pattern, name)) return i;
  return std::nullopt;
}

Result<Placement> tp_placement(const muster_tp_rule& rule, std::size_t dims) {
  if (rule.style < MUSTER_TP_REPLICATE || rule.style > MUSTER_TP_VOCABULARY)
    return fail(Code::kBadArgument, "rule \"{}\": style is {}, which does not exist", rule.pattern,
                rule.style);
  if (rule.style == MUSTER_TP_REPLICATE) return Placement::replicate();
  if (dims < 1 || dims > 2)
    return fail(Code::kBadArgument, "rule \"{}\" cuts a parameter of {} dims; weights have 2 and biases 1",
                rule.pattern, dims);
  if (rule.style == MUSTER_TP_ROW && dims == 1) return Placement::replicate();
  MUSTER_ASSIGN_OR_RETURN(Split split, split_of(rule));
  return Placement::shard(rule.style == MUSTER_TP_ROW ? 1 : 0, std::move(split));
}

// With sequence parallelism a sum over the ranks becomes a reduce-scatter along the sequence, and a read by
// all becomes an all-gather. Backward is the adjoint of forward.
muster_op tp_collective(muster_tp_style style, muster_tp_moment moment, bool sequence_parallel) {
  const bool sums = style == MUSTER_TP_ROW || style == MUSTER_TP_VOCABULARY;
  switch (moment) {
    case MUSTER_TP_INPUT:
      return style == MUSTER_TP_COLUMN && sequence_parallel ? MUSTER_ALL_GATHER : 0;
    case MUSTER_TP_OUTPUT:
      return !sums ? 0 : sequence_parallel ? MUSTER_REDUCE_SCATTER : MUSTER_ALL_REDUCE;
    case MUSTER_TP_OUTPUT_GRADIENT:
      return sums && sequence_parallel ? MUSTER_ALL_GATHER : 0;
    default:
      return style != MUSTER_TP_COLUMN ? 0 : sequence_parallel ? MUSTER_REDUCE_SCATTER : MUSTER_ALL_REDUCE;
  }
}

}  // namespace muster::shard
