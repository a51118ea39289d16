// Cells: what a rank program is to measure, said in words on its command line; and the lines in which it
// answers.
#pragma once

#include "tests/bench/contender.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace muster::bench {

// Measurements besides the operations. By one rank of Muster:
//   submit     one start alone, while the engine works beside it
//   kernel     the smallest kernel, to the engine and back
//   attach     opening and closing a session of an existing job
//   job        the same for a new job: a process is started for it
//   mesh_group one of the groups of a mesh in an existing job, all made in one transaction
// By all ranks:
//   group      one more group of all ranks, by a call of each of them
//   first_use  an all_reduce that was never run before, from its description to its result
//   wake       from the arrival of the last rank at a barrier to the return of all, after a long wait
//   overlap    a figure: the part of an all_reduce that disappears behind as much work of every rank
//   overlap_free  the same with work of rank 0 alone, and as much of it as the all_reduce takes on the cores
//              that this leaves free
//   memory     a figure: the memory of all processes of the run, once the ranks have met and reduced 64 KiB
inline constexpr std::array<const char*, 5> kAlone = {"submit", "kernel", "attach", "job", "mesh_group"};
inline constexpr std::array<const char*, 6> kBesides = {"group",   "first_use",    "wake",
                                                        "overlap", "overlap_free", "memory"};
std::vector<std::string> all_names();  // these, then the operations: the order of the tables

// The time that one cell may take. All ranks decide alike, because they decide from the same figures.
struct Effort {
  double seconds = 0.05;  // of timed runs, where that gives `samples` samples
  int samples = 9;
  double limit = 0.2;     // beyond it fewer samples are taken, in the end a single one
  double patience = 2.0;  // a cell that is expected to need longer for one operation is left out and reported
};

struct Cells {
  std::string path;
  std::vector<std::string> operations;  // of all_names()
  std::vector<std::size_t> sizes;       // ascending
  Effort effort;
  int root_pid = 0;  // of the process that has started all that belongs to this run

  bool wants(const std::string& operation) const;
};
std::vector<std::string> to_arguments(const Cells& cells);
// Ends the process with a sentence if the words are not those of to_arguments().
Cells cells_of(std::span<char* const> arguments);

struct Timing {
  double median_us = 0.0;
  double minimum_us = 0.0;
  int samples = 0;
};
Timing timing_of(std::vector<double> seconds);
double median_of(std::vector<double> values);  // of one at least

// Lines of JSON on standard output, from rank 0 alone: a row of the table, a figure that is no time, and what
// is left out and why.
void print_row(const Contender& contender, const Cells& cells, const std::string& operation,
               std::size_t bytes, const Timing& timing);
void print_figure(const Contender& contender, const Cells& cells, const std::string& figure, double value,
                  const char* unit);
void print_version(const Contender& contender);
void print_left_out(const Contender& contender, const Cells& cells, const std::string& operation,
                    const std::string& why);

}  // namespace muster::bench
