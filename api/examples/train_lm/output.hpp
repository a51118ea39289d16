// The files and the stream that a run writes: refused before training where that can be known.
#pragma once

#include <stdexcept>
#include <string>

namespace train_lm {

// "cannot write FILE: reason". The program says what() and ends with status 1.
class OutputError : public std::runtime_error {
 public:
  OutputError(const std::string& file, const std::string& reason)
      : std::runtime_error("cannot write " + file + ": " + reason) {}
};

// Opens for appending and closes; removes the file if that made it. Throws OutputError, also for what is
// there and is no regular file: a trace takes a file's place by renaming.
void check_writable(const std::string& path);

// Flushes standard output. Throws OutputError if anything written there was lost.
void finish_output();

}  // namespace train_lm
