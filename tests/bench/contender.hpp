// Contender: what one rank of an implementation must be able to do so that sweep() can measure it. Muster and
// its peers stand behind the same interface, so that they are measured by the same loop, to the letter.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace muster::bench {

// An operation over its own memory, ready to run as often as wanted.
struct Prepared {
  std::span<float> source;
  std::span<float> target;
  std::function<void()> run;  // from start to result, on this rank
};

// Elements of one rank's vectors.
struct Extent {
  std::size_t source = 0;
  std::size_t target = 0;
};

// Owns    the memory and the plan of the operation prepared last.
// Thread  one.
// Bound   one prepared operation.
// Fails   a call that the implementation refuses ends the rank with its reason on standard error.
class Contender {
 public:
  Contender() = default;
  virtual ~Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;

  virtual const char* name() const = 0;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual void barrier() = 0;
  // The greatest of all ranks' values, the same on all of them.
  virtual double maximum(double mine) = 0;
  // all_reduce, all_gather, reduce_scatter; takes the place of what was prepared before.
  virtual Prepared prepare(const std::string& operation, Extent extent) = 0;
};

struct Effort {
  double seconds = 0.5;  // for one cell, about
  int samples = 9;
};

// What to measure; the same words on the command line of every rank program.
struct Cells {
  std::string path;
  std::vector<std::string> operations;
  std::vector<std::size_t> sizes;
  Effort effort;

  bool wants(const std::string& operation) const;
};
std::vector<std::string> to_arguments(const Cells& cells);
// Ends the process with a sentence if the words are not those of to_arguments().
Cells cells_of(std::span<char* const> arguments);

struct Timing {
  double median_us = 0.0;
  double minimum_us = 0.0;
};
Timing timing_of(std::vector<double> seconds);

// A sample is a barrier, then `run` several times; it counts the slowest rank's time for one. How often
// follows from a first look and the effort, equal on all ranks.
Timing measure(Contender& contender, const Effort& effort, const std::function<void()>& run);

// Vectors of this rank for a full vector of `bytes`, of at least one element for each rank: 8 bytes on four
// ranks become 16 where every rank has a part.
Extent extent_of(const std::string& operation, std::size_t bytes, int ranks);

// All collectives of `cells`: each result is checked on every rank, then timed; rank 0 prints the rows.
void sweep(Contender& contender, const Cells& cells);
void print_row(const Contender& contender, const Cells& cells, const char* operation, std::size_t bytes,
               const Timing& timing);

}  // namespace muster::bench
