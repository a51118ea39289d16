// The parts of a program's help and manual page besides its commands and options, declared once for both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::control {

struct Fact {
  std::string name;  // an exit code, a variable, a file, a command line
  std::string sentence;
};

struct Manual {
  std::string synopsis;                  // after the program's name
  std::vector<std::string> description;  // paragraphs
  std::vector<Fact> examples;
  std::vector<Fact> environment;
  std::vector<Fact> files;
  std::vector<Fact> exit_codes;
  std::vector<std::string> see_also;  // "musterd(8)"
};

// The end of --help: examples, environment and exit codes.
std::string help_footer(const Manual& manual);

// The values of an option, by the name that help shows for them: "FILE", "JOB", "OP".
struct Values {
  enum class Kind : std::uint8_t { kFile, kFolder, kJob, kWords };
  Kind kind = Kind::kWords;
  std::vector<std::string> words;  // kWords: all of them
};
inline constexpr const char* kFile = "FILE";
inline constexpr const char* kFolder = "FOLDER";
inline constexpr const char* kJob = "JOB";
inline constexpr const char* kOp = "OP";
inline constexpr const char* kDtype = "DTYPE";
inline constexpr const char* kKey = "KEY";
inline constexpr const char* kSetting = "KEY=VALUE";
inline constexpr const char* kSchema = "musterd|cluster";

// nullopt for any other name, such as a number's.
std::optional<Values> values_named(const std::string& name);

}  // namespace muster::control
