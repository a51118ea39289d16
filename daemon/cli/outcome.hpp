// How a command ends: its exit code, and what it says when it fails. Scripts depend on the numbers.
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
  std::string text;       // one sentence with its remedy, lines of a configuration; empty: nothing to say
  Code code = Code::kOk;  // of the status that it comes from, if it comes from one
};

template<class T>
using OrTrouble = tl::expected<T, Trouble>;

// The exit code that a status means.
Trouble trouble_of(const Status& status);
tl::unexpected<Trouble> troubled(const Status& status);
// What the user wrote is wrong.
tl::unexpected<Trouble> usage(std::string text);

// "muster: …" on standard error. Returns the exit code. What it is made of may be a stranger's: no control
// character of it comes out, here and below.
int complain(const Trouble& trouble);
// "muster: warning: …" on standard error.
void warn(const std::string& text);
// The text as it is, on standard error: lines that editors look for.
void print_error(const std::string& text);

// One line with "schema_version", on standard output. kFailed if it cannot be written. An integer of
// 2^53 and more, which readers of JSON may round to a double, becomes a string of its digits.
int print_json(Json object);
int print_text(const std::string& said);

}  // namespace muster::cli
