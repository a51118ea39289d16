// Sampling from a trained model, by all ranks together: each computes the same sequence and draws the same
// bytes.
#pragma once

#include "api/examples/train_lm/trainer.hpp"

#include <span>
#include <string>

namespace train_lm {

using training::Runtime;

// Continues the prompt of `text` by options.generate bytes and returns those. Every rank of the mesh calls
// it.
std::string generate(Runtime& runtime, const Mesh& mesh, const Options& options, const Text& text,
                     Trainer& trainer);

// The index that `uniform` in [0, 1) draws from softmax(logits / temperature).
std::size_t draw(std::span<const float> logits, double temperature, double uniform);

}  // namespace train_lm
