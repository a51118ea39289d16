#include "daemon/cli/outcome.hpp"

#include "api/base/utf8.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace muster::cli {

namespace {

int exit_code_of(Code code) {
  switch (code) {
    case Code::kBadArgument:
    case Code::kConfig:
      return kUsage;
    case Code::kNotFound:
      return kNoObject;
    case Code::kWaitTimeout:
    case Code::kTimeout:
      return kTimedOut;
    default:
      return kFailed;
  }
}

// RFC 8259, section 6: integers that a double holds exactly are interoperable.
constexpr std::int64_t kExactMax = (std::int64_t{1} << 53) - 1;

void make_exact(Json& value) {
  if (value.is_structured()) {
    for (Json& member : value) make_exact(member);
  } else if (value.is_number_unsigned()) {
    if (value.get<std::uint64_t>() > static_cast<std::uint64_t>(kExactMax)) value = value.dump();
  } else if (value.is_number_integer()) {
    const auto number = value.get<std::int64_t>();
    if (number > kExactMax || number < -kExactMax) value = value.dump();
  }
}

}  // namespace

Trouble trouble_of(const Status& status) {
  return {exit_code_of(status.code()), status.message(), status.code()};
}

tl::unexpected<Trouble> troubled(const Status& status) {
  return tl::unexpected(trouble_of(status));
}

Trouble not_as_expected(const Json::exception& error) {
  return {kFailed, fmt::format("the daemon's answer is not as expected: {}", error.what())};
}

tl::unexpected<Trouble> usage(std::string text) {
  return tl::unexpected(Trouble{kUsage, std::move(text)});
}

int complain(const Trouble& trouble) {
  if (!trouble.text.empty()) print_error(fmt::format("muster: {}\n", trouble.text));
  return trouble.exit_code;
}

void warn(const std::string& text) {
  print_error(fmt::format("muster: warning: {}\n", text));
}

void print_error(const std::string& text) {
  std::fflush(stdout);
  std::fputs(printable(text, Lines::kSeveral).c_str(), stderr);
}

int print_json(Json object) {
  object["schema_version"] = kSchemaVersion;
  make_exact(object);
  // Names may come from another version or user: invalid UTF-8 must not end the program.
  return print_text(object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

int print_text(const std::string& said) {
  const std::string text = printable(said, Lines::kSeveral);
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written) return kOk;
  return complain({kFailed, fmt::format("standard output cannot be written: {}", std::strerror(errno))});
}

}  // namespace muster::cli
