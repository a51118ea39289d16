// The progress that rank 0 shows: a bar on a terminal, a line every ten steps elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace train_lm {

// The figures of one training run.
struct Figures {
  std::vector<float> losses = {};  // one for each step
  std::vector<float> alone = {};   // --verify: the same run on one rank
  double tokens_per_second = 0.0;
  double exposed_fraction = 0.0;  // share of the time in which kernels of rank 0 waited for a collective
  std::int64_t peak_unsharded_bytes = 0;
  std::int64_t least_unsharded_bytes = 0;  // the smallest --budget

  float max_loss_difference() const;  // NaN if a loss is NaN
};

// One line of JSON; max_loss_difference is null without --verify.
std::string figures_json(const Figures& figures);
// The bytes with '.' for each that is no text, so that a terminal can show them.
std::string printable(const std::string& bytes);
// The line of a step, shorter than the terminal's columns, or it could not be written over: without its bar
// if that is too much, and then without the last figures.
std::string fitting_line(const std::string& title, const std::string& bar, const std::string& figures,
                         std::size_t columns);

// Owns    nothing but its clock.
// Thread  one.
// Bound   one line a step.
// Fails   never.
class Progress {
 public:
  Progress(std::string title, std::int64_t steps, std::int64_t tokens_per_step);

  // `done`: of all steps; `computed`: by this run, since it began or was resumed.
  void show(std::int64_t done, std::int64_t computed, float loss, const Figures& figures);
  double seconds() const;

 private:
  std::string title_;
  std::int64_t steps_;
  std::int64_t tokens_per_step_;
  bool terminal_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace train_lm
