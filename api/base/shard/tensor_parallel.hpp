// Tensor parallelism by names: which parameters are cut, how, and which collectives belong to a cut.
//
// Reference: Megatron-LM (Shoeybi et al., arXiv:1909.08053; sequence parallelism: Korthikanti et al.,
// arXiv:2205.05198), torchtitan's plan for Llama, DeepSpeed's AutoTP.
#pragma once

#include "api/base/layout/layout.hpp"
#include "api/base/result.hpp"

#include <muster/tensor_parallel.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace muster::shard {

// The rules of a Llama, by the names that Meta, Hugging Face and torchtitan give its parameters.
std::span<const muster_tp_rule> llama_rules();

// The first rule that fits; nothing if none does.
std::optional<std::size_t> rule_of(std::span<const muster_tp_rule> rules, std::string_view name);

// How a parameter of so many dims lies along the tp axis. A weight is [out, in], a bias or a norm has one
// dim. Errors: kBadArgument (more dims than 2 for a style that cuts; a split that does not exist).
Result<Placement> tp_placement(const muster_tp_rule& rule, std::size_t dims);

// The collective for an activation, or its gradient, at one moment of a layer; 0: none.
muster_op tp_collective(muster_tp_style style, muster_tp_moment moment, bool sequence_parallel);

}  // namespace muster::shard
