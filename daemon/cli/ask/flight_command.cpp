#include "daemon/cli/ask/flight_command.hpp"

#include "api/base/named_path.hpp"
#include "api/base/words.hpp"
#include "daemon/cli/ask/flight_table.hpp"
#include "daemon/cli/ask/trace_file.hpp"
#include "daemon/cli/merge/flight_merge.hpp"
#include "daemon/config/table.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace muster::cli {
namespace {

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
  if (error) return Trouble{kFailed, fmt::format("--pickles: cannot make {}: {}", folder, error.message())};
  for (const auto& [rank, dump] : ranks.items()) {
    const std::string path = folder + "/rank_" + rank;
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    const std::string bytes = pickled(dump);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush())
      return Trouble{kFailed, fmt::format("cannot write {}: {}", path, std::strerror(errno))};
  }
  return std::nullopt;
}

std::string told(const FlightPaths& paths, std::uint64_t bytes, const MergedFlight& flight) {
  std::string text = fmt::format("{} operations of {} ranks\n", flight.entries, flight.ranks);
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

std::optional<Trouble> fault_of(const FlightPaths& paths) {
  if (!paths.file.empty())
    if (auto trouble = check_writable("-o", paths.file)) return trouble;
  const std::string fault = paths.folder.empty() ? "" : fault_of_new_folder(paths.folder);
  return fault.empty() ? std::nullopt : std::optional(Trouble{kFailed, "--pickles: " + fault});
}

int run_flight(const DaemonAddress& address, const std::string& job, const FlightPaths& paths,
               Output output) {
  auto reports = ask_reports(address, job, "flight");
  if (!reports) return complain(reports.error());
  const MergedFlight flight = merged_flight(job, *reports);
  if (std::all_of(reports->begin(), reports->end(), silent)) return complain({kFailed, reports->front().why});
  if (paths.file.empty() && paths.folder.empty())
    return output == Output::kJson
               ? print_json(flight.json)
               : print_text(fmt::format("job {}\n", job) +
                            flight_table(flight.json, paths.last, config::screen_columns()) +
                            unanswered_text(job, *reports));
  std::uint64_t bytes = 0;
  if (!paths.file.empty()) {
    const std::string text = flight.json.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (const auto trouble = write_whole(text, paths.file)) return complain(*trouble);
    bytes = text.size();
  }
  if (!paths.folder.empty())
    if (const auto trouble = write_folder(paths.folder, flight.json.at("ranks"))) return complain(*trouble);
  if (output == Output::kText) return print_text(told(paths, bytes, flight) + unanswered_text(job, *reports));
  return print_json({{"job", job},
                     {"path", paths.file},
                     {"folder", paths.folder},
                     {"bytes", bytes},
                     {"ranks", flight.ranks},
                     {"entries", flight.entries},
                     {"operations", flight.json.at("operations").size()},
                     {"unanswered", flight.json.at("unanswered")}});
}

}  // namespace muster::cli
