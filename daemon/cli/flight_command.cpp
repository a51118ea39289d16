#include "daemon/cli/flight_command.hpp"

#include "api/base/words.hpp"
#include "daemon/cli/trace_file.hpp"
#include "daemon/config/diagnostic.hpp"
#include "daemon/config/table.hpp"

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace muster::cli {
namespace {

constexpr std::size_t kFlightBytesMax = std::size_t{1} << 30;

template<class Number>
void add_little_endian(Number number, std::string* out) {
  for (std::size_t i = 0; i < sizeof number; ++i) *out += static_cast<char>(number >> (8 * i) & 0xff);
}

void add_integer(std::int64_t number, std::string* out) {
  if (number >= INT32_MIN && number <= INT32_MAX) {
    *out += 'J';
    return add_little_endian(static_cast<std::uint32_t>(number), out);
  }
  *out += "\x8a\x08";  // LONG1, eight bytes
  add_little_endian(static_cast<std::uint64_t>(number), out);
}

void add_float(double number, std::string* out) {
  *out += 'G';
  const auto bits = std::bit_cast<std::uint64_t>(number);
  for (int shift = 56; shift >= 0; shift -= 8) *out += static_cast<char>(bits >> shift & 0xff);
}

void add_text(const std::string& text, std::string* out) {
  *out += 'X';
  add_little_endian(static_cast<std::uint32_t>(text.size()), out);
  *out += text;
}

void add_value(const Json& value, std::string* out) {
  if (value.is_object()) {
    *out += "}(";
    for (const auto& [name, member] : value.items()) {
      add_text(name, out);
      add_value(member, out);
    }
    *out += 'u';
  } else if (value.is_array()) {
    *out += "](";
    for (const Json& member : value) add_value(member, out);
    *out += 'e';
  } else if (value.is_string()) {
    add_text(value.get_ref<const std::string&>(), out);
  } else if (value.is_boolean()) {
    *out += value.get<bool>() ? '\x88' : '\x89';
  } else if (value.is_number_integer()) {
    add_integer(value.get<std::int64_t>(), out);
  } else if (value.is_number_float()) {
    add_float(value.get<double>(), out);
  } else {
    *out += 'N';
  }
}

std::optional<Trouble> write_folder(const std::string& folder, const Json& ranks) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Trouble{kFailed, fmt::format("cannot make {}: {}", folder, error.message())};
  for (const auto& [rank, dump] : ranks.items()) {
    // The name comes from an engine and becomes part of a path.
    if (rank.empty() || rank.find_first_not_of("0123456789") != std::string::npos)
      return Trouble{kFailed,
                     fmt::format("the daemon's answer is of {}, which is no rank", config::in_quotes(rank))};
    const std::string path = folder + "/rank_" + rank;
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    const std::string bytes = pickled(dump);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) return Trouble{kFailed, fmt::format("cannot write {}", path)};
  }
  return std::nullopt;
}

std::string told(const FlightPaths& paths, std::uint64_t bytes, std::size_t ranks, std::size_t entries) {
  std::string text = fmt::format("{} operations of {} ranks\n", entries, ranks);
  if (!paths.file.empty()) text += fmt::format("{} of JSON in {}\n", bytes_text(bytes), paths.file);
  if (!paths.folder.empty())
    text += fmt::format("one pickle a rank in {0}; read it with: torchfrtrace {0} -p rank_\n", paths.folder);
  return text;
}

}  // namespace

std::string pickled(const Json& value) {
  std::string out = "\x80\x02";
  add_value(value, &out);
  return out + '.';
}

int run_flight(const DaemonAddress& address, const std::string& job, const FlightPaths& paths,
               Output output) {
  if (paths.file.empty() && paths.folder.empty())
    return complain({kUsage, "flight: say where to write, with -o FILE, --pickles FOLDER or both"});
  if (!paths.file.empty())
    if (const auto trouble = check_writable(paths.file)) return complain(*trouble);
  const auto answer = ask(address, {{"command", "flight"}, {"job", job}});
  if (!answer) return complain(answer.error());
  if (answer->descriptors.size() != 1) return complain({kFailed, "the daemon sent no record"});
  const auto text = control::read_descriptor(answer->descriptors.front(), kFlightBytesMax);
  if (!text) return complain(trouble_of(text.error()));
  const Json flight = Json::parse(*text, nullptr, false);
  try {
    const Json& ranks = flight.at("ranks");
    std::size_t entries = 0;
    for (const Json& dump : ranks) entries += dump.at("entries").size();
    std::uint64_t bytes = 0;
    if (!paths.file.empty()) {
      const auto written = write_trace(*answer, paths.file);
      if (!written) return complain(written.error());
      bytes = *written;
    }
    if (!paths.folder.empty())
      if (const auto trouble = write_folder(paths.folder, ranks)) return complain(*trouble);
    if (output == Output::kText) return print_text(told(paths, bytes, ranks.size(), entries));
    return print_json({{"job", job},
                       {"path", paths.file},
                       {"folder", paths.folder},
                       {"bytes", bytes},
                       {"ranks", ranks.size()},
                       {"entries", entries}});
  } catch (const Json::exception& error) {  // a daemon of another version
    return complain({kFailed, fmt::format("the daemon's answer is not as expected: {}", error.what())});
  }
}

}  // namespace muster::cli
