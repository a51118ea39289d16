#include "daemon/cli/outcome.hpp"

#include "api/shm/message.hpp"

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

// What an engine says may be a stranger's: it moves no cursor of ours. Lines and columns stay.
std::string harmless(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] != '\n' && text[i] != '\t')
      text.replace(i, shm::control_bytes(text, i), shm::control_bytes(text, i), '?');
  return text;
}

}  // namespace

Trouble trouble_of(const Status& status) {
  return {exit_code_of(status.code()), status.message(), status.code()};
}

tl::unexpected<Trouble> troubled(const Status& status) {
  return tl::unexpected(trouble_of(status));
}

int complain(const Trouble& trouble) {
  std::fflush(stdout);
  std::fprintf(stderr, "muster: %s\n", harmless(trouble.text).c_str());
  return trouble.exit_code;
}

int print_json(Json object) {
  object["schema_version"] = kSchemaVersion;
  // Names may come from another version or user: bytes that are no UTF-8 must not end the program.
  return print_text(object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

int print_text(const std::string& said) {
  const std::string text = harmless(said);
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written) return kOk;
  return complain({kFailed, fmt::format("standard output cannot be written: {}", std::strerror(errno))});
}

}  // namespace muster::cli
