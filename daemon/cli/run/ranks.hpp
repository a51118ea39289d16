// Ranks: the processes of one run, from the start to the end of the last one. They are ranks of this node, or
// the parts of a run over several hosts, each behind its launcher (part_link.hpp).
#pragma once

#include "daemon/cli/child.hpp"
#include "daemon/cli/run/line_prefixer.hpp"
#include "daemon/cli/run/part_link.hpp"
#include "daemon/cli/run/run_output.hpp"
#include "daemon/control/loop.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace muster::cli {

// Owns    the processes, their pipes, and their unread output.
// Thread  the loop's.
// Bound   the number of processes; Outlet::kQueueBytes of unread output, and what ended ranks left in
//         their pipes. A rank that writes faster than the terminal reads waits.
// Fails   start: as Child::spawn(), and kNoResource if the open-files limit is too low; then nothing runs.
//         Only the first failure of a rank is reported, and again at the end, with the last line of the
//         rank's standard error; the others are ended after the grace time. Once a rank has failed, equal
//         lines of several ranks there become one: standard error is held for a moment. Elastic ranks go on:
//         each failure is reported, and the run is well if the last rank to end is. If output cannot be
//         written, all ranks are ended. A part reports the first failure of its ranks before it ends, and
//         that counts as the part's.
class Ranks {
 public:
  // kLines: no prefix, and whole lines all the same.
  enum class Prefix : std::uint8_t { kRank, kLines, kNone };
  // One of the processes, as messages call it.
  struct Member {
    std::uint32_t rank = 0;                // of a rank, in its job
    std::string host;                      // of a part
    std::string launcher;                  // of a part: what starts it, in short
    std::vector<std::string> command;      // a part's own; ranks have that of the run
    std::vector<std::string> environment;  // all of it
    std::string title() const;             // "rank 2", "host node02"
  };
  // kParts: the processes are parts, which receive signals as lines (part_link.hpp).
  enum class Kind : std::uint8_t { kRanks, kParts };
  struct Options {
    Kind kind = Kind::kRanks;
    std::vector<std::string> command;
    std::vector<Member> members;
    // The run is a part: its input is not for the ranks, and its head is told of the first failure.
    bool is_part = false;
    Prefix prefix = Prefix::kRank;
    Nanos grace = std::chrono::seconds(10);
    bool elastic = false;  // if a rank fails, the others go on
    // A rank has ended, well or not, while others still run: nobody needs to wait for it.
    std::function<void(std::uint32_t rank, const std::string& text)> on_end;
  };
  using Done = std::function<void(int exit_code)>;

  Ranks(control::Loop& loop, Options options, Done done);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // The loop calls `done` once, when all have ended and their output is read. After an interrupt it does not
  // wait long for the output.
  Status start();
  void forward(int signal);
  // The user wants an end: all ranks get the signal, and those that stay beyond the grace time are killed.
  // The second call kills at once, and waits for no reader.
  void interrupt(int signal);
  bool interrupted() const { return interrupted_ != 0; }
  // Kills all at once, and waits for no reader.
  void kill();
  // Whether the grace time runs.
  bool ending() const { return ending_; }
  // Prints on standard error, after the ranks' output there.
  void say(const std::string& text) { output_.say(text); }

 private:
  struct Stream {
    std::size_t index = 0;  // of its process
    shm::Descriptor pipe;
    std::size_t which = 0;  // 0: standard output, 1: standard error
    bool gathered = false;  // its lines are held
    control::Loop::Watch watch = 0;
    std::optional<LinePrefixer> prefixer;
  };
  struct Process {
    std::unique_ptr<Child> child;
    control::Loop::Watch death = 0;
    std::array<Stream, 2> streams;  // standard output and error
    bool told = false;              // a part: that one of its ranks has failed
    std::string last_words;         // the last line of its standard error that is not empty
  };
  // The first failure of the run, which the run's last message repeats.
  struct FirstFailure {
    Child::End end;
    std::string who;
    Nanos after{0};  // the start
    std::string last_words;
  };

  Status start_member(std::size_t index);
  void open_stream(std::size_t index, std::size_t which, shm::Descriptor pipe);
  void on_output(Stream& stream);
  std::optional<std::size_t> relay(Stream& stream);
  void close_stream(Stream& stream);
  void print(const Stream& stream, const std::string& lines);
  void on_death(std::size_t index);
  void on_failure(std::size_t index, const Child::End& end);
  void note_first(Child::End end, const std::string& who, const std::string& last_words);
  void on_told(std::size_t index, const ToldFailure& failure);
  void all_ended();
  void finish_if_read();
  void give_up_output();
  void end_all_after(Nanos delay, const std::string& cause);
  std::string still_running() const;
  void listen(Stream& stream);
  void output_taken(std::size_t which);
  void output_broke(std::size_t which, int error);

  control::Loop& loop_;
  Options options_;
  Done done_;
  std::vector<Process> processes_;
  std::vector<char> buffer_;
  std::size_t running_ = 0;
  std::optional<FirstFailure> first_failure_;
  const SteadyClock clock_;
  Instant started_{0};
  int interrupted_ = 0;
  std::size_t interrupted_count_ = 0;  // ranks that ran at the interrupt
  bool ending_ = false;
  RunOutput output_;
  bool output_failed_ = false;  // for another reason than that its reader left
  bool ended_ = false;          // all ranks have
  bool finished_ = false;
  std::vector<control::Loop::Watch> timers_;
};

}  // namespace muster::cli
