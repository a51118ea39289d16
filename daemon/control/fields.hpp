// Fields: reads messages and texts that may hold anything, such as those of another node.
#pragma once

#include "daemon/control/job.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace muster::control {

// The reason of the first bad field stays. A bad field gives 0, empty or false.
//
// Owns    the reason.
// Thread  one.
// Bound   numbers and texts as the callers say.
// Fails   why(): kProtocol, with the name of the field.
class Fields {
 public:
  static constexpr std::size_t kTextBytesMax = 512;  // of a name or a place in a program

  // `what` is read, in words: "the snapshot of an engine".
  explicit Fields(std::string what) : what_(std::move(what)) {}
  const Status& why() const { return why_; }

  std::uint64_t number(const Json& from, const char* name, std::uint64_t most);
  std::uint32_t word(const Json& from, const char* name,
                     std::uint32_t most = std::numeric_limits<std::uint32_t>::max());
  // -1 or a number from 0 on.
  std::int32_t index(const Json& from, const char* name);
  bool yes(const Json& from, const char* name);
  // Cut after `most` bytes.
  std::string text(const Json& from, const char* name, std::size_t most = kTextBytesMax);
  const Json& list(const Json& from, const char* name);
  const Json& map(const Json& from, const char* name);
  // Each is below `world`.
  std::vector<std::uint32_t> ranks(const Json& from, const char* name, std::uint32_t world);
  template<class Enum>
  Enum one_of(const Json& from, const char* name, std::initializer_list<Enum> values,
              const char* (*name_of)(Enum) noexcept) {
    for (const Enum value : values)
      if (is_text(from, name, name_of(value))) return value;
    bad(name);
    return *values.begin();
  }
  static bool has(const Json& from, const char* name);
  // null if there is no such field.
  static const Json& at(const Json& from, const char* name);
  // Takes a fault of the field that the caller has found.
  void bad(const char* name);

 private:
  static bool is_text(const Json& from, const char* name, const char* text);

  std::string what_;
  Status why_;
};

// JSON in a text that may be anything: no deeper than kBodyDepthMax, no more than `items_max` values.
// kProtocol, with `what` it is.
Result<Json> json_in(const std::string& text, std::size_t items_max, const std::string& what);

}  // namespace muster::control
