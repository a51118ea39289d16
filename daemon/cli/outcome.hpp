// How a command ends: its exit code, and its message when it fails. Scripts depend on the numbers.
#pragma once

#include "api/base/result.hpp"

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

namespace muster::cli {

using Json = nlohmann::json;

inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;        // or an invalid configuration
inline constexpr int kUnreachable = 3;  // no daemon
inline constexpr int kNoObject = 4;
inline constexpr int kUnhealthy = 5;
inline constexpr int kTimedOut = 124;
inline constexpr int kCannotRun = 126;
inline constexpr int kNoProgram = 127;
inline constexpr int kInterrupted = 130;

inline constexpr int kSchemaVersion = 1;

enum class Output : std::uint8_t { kText, kJson };

struct Trouble {
  int exit_code = kFailed;
  std::string text;       // one sentence with its remedy, or lines of a configuration; may be empty
  Code code = Code::kOk;  // of the status behind it, if there is one
};

template<class T>
using OrTrouble = tl::expected<T, Trouble>;

// The exit code for a status.
Trouble trouble_of(const Status& status);
tl::unexpected<Trouble> troubled(const Status& status);
// The daemon is of another version.
Trouble not_as_expected(const Json::exception& error);
// A mistake of the user.
tl::unexpected<Trouble> usage(std::string text);

// Prints "muster: …" on standard error. Returns the exit code. Control characters are not printed, here and
// below, because the text may come from any program.
int complain(const Trouble& trouble);
// "muster: warning: …" on standard error.
void warn(const std::string& text);
// Prints the text as it is on standard error: lines that editors look for.
void print_error(const std::string& text);

// Prints one line with "schema_version" on standard output. kFailed if it cannot be written. An integer of
// 2^53 or more, which JSON readers may round to a double, becomes a string of digits.
int print_json(Json object);
int print_text(const std::string& said);

}  // namespace muster::cli
