// The files and the stream that a run writes. A file that cannot be written is refused before training.
#pragma once

#include <stdexcept>
#include <string>

namespace training {

// "cannot write FILE: reason". The program prints what() and ends with status 1.
class OutputError : public std::runtime_error {
 public:
  OutputError(const std::string& file, const std::string& reason)
      : std::runtime_error("cannot write " + file + ": " + reason) {}
};

// Opens the file for appending and closes it; removes it if the check made it. Throws OutputError, also if
// the path has something other than a regular file: a trace takes a file's place by renaming.
void check_writable(const std::string& path);

// Makes a folder, if it is not there, in which files can be made. Throws OutputError.
void check_folder(const std::string& path);

// Flushes standard output. Throws OutputError if anything written there was lost.
void finish_output();

}  // namespace training
