#include "daemon/cli/ask/top_view.hpp"

#include "api/base/utf8.hpp"
#include "api/base/words.hpp"
#include "daemon/cli/merge/top_nodes.hpp"

#include <algorithm>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace muster::cli {
namespace {

struct Order {
  char key;
  const char* title;  // of the column
  const char* field;  // of a rank
  bool falling;
  const char* meaning;
};
constexpr Order kOrders[] = {
    {'r', "RANK", "rank", false, "the rank in its job"},
    {'o', "OPS/S", "ops_per_s", true, "operations a second: kernels and collectives"},
    {'b', "BYTES/S", "bytes_per_s", true, "data of its collectives a second"},
    {'e', "EXPOSED", "exposed", true, "the share of time that kernels wait for a collective"},
    {'c', "COMPUTE", "compute", true, "the share of time that its kernels run"},
    {'f', "IN FLIGHT", "in_flight", true, "operations that are started and not done"},
    {'l', "LAG", "lag", true, "how late it comes, in the group where that is worst"},
    {'m', "MEMORY", "buffer_bytes", true, "of its buffers"}};

std::string percent(double part) {
  return fmt::format("{:.0f} %", std::clamp(part, 0.0, 1.0) * 100);
}

std::string rate(double value) {
  return value >= 1000 ? fmt::format("{:.1f}k", value / 1000) : fmt::format("{:.1f}", value);
}

std::string bytes_a_second(const Json& value) {
  return bytes_text(static_cast<std::uint64_t>(value.get<double>())) + "/s";
}

std::string lag_text(const Json& rank) {
  const Json& lag = rank.at("lag");
  if (lag.is_null()) return "-";
  const double millis = lag.at("median_ns").get<double>() * 1e-6;
  return fmt::format("{:.{}f} ms{}", millis, millis < 10 ? 2 : 1, rank.at("late").get<bool>() ? " LATE" : "");
}

// The value by which ranks are sorted. A rank that is not attached comes last.
double value_of(const Json& rank, const Order& order) {
  if (order.field == std::string("rank")) return rank.at("rank").get<double>();
  if (!rank.at("attached").get<bool>()) return -1.0;
  if (order.field == std::string("lag"))
    return rank.at("lag").is_null() ? 0.0 : rank.at("lag").at("median_ns").get<double>();
  return rank.at(order.field).get<double>();
}

std::vector<Json> sorted(const Json& ranks, const Order& order, bool falling) {
  std::vector<Json> all(ranks.begin(), ranks.end());
  std::stable_sort(all.begin(), all.end(), [&](const Json& a, const Json& b) {
    return falling ? value_of(a, order) > value_of(b, order) : value_of(a, order) < value_of(b, order);
  });
  return all;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(std::move(line));
  return lines;
}

// A table or a list, of which the window may hold a part.
struct Section {
  std::vector<std::string> lines;
  std::size_t head = 0;   // lines that stand above its rows
  const char* what = "";  // the name of its rows
  std::string note = {};  // on what is left out of each row
  std::size_t skip = 0;   // rows before the first that is shown
  std::size_t shown = 0;  // lines

  std::size_t rows() const { return lines.size() - head; }
  std::size_t wanted() const { return lines.size() + (note.empty() ? 0 : 1); }
  bool cut() const { return shown < wanted(); }
  // Those that a cut section has room for.
  std::size_t room() const { return shown - std::min(shown, head + 1); }
};

// `text`: a table, with its head.
Section section_of(const std::string& text, const char* what) {
  Section section{lines_of(text), 1, what};
  if (!section.lines.back().starts_with("(")) return section;
  section.note = section.lines.back();
  section.lines.pop_back();
  return section;
}

// Gives each section its lines, or an equal part of what is left once shorter ones have theirs.
void share_out(std::vector<Section>& sections, std::size_t lines) {
  std::vector<Section*> hungry;
  for (Section& section : sections) hungry.push_back(&section);
  std::stable_sort(hungry.begin(), hungry.end(),
                   [](const Section* a, const Section* b) { return a->wanted() < b->wanted(); });
  for (std::size_t i = 0; i < hungry.size(); ++i) {
    hungry[i]->shown = std::min(hungry[i]->wanted(), lines / (hungry.size() - i));
    lines -= hungry[i]->shown;
  }
}

// A note on the columns that are left out, in fewer words where the line is too narrow for it.
std::string note_within(const std::string& note, const std::string& before, std::size_t columns) {
  if (note.empty()) return before;
  const std::string whole = before + (before.empty() ? "" : " ") + note;
  if (utf8_characters(whole) <= columns) return whole;
  const auto names = 1 + std::count(note.begin(), note.end(), ',');
  return fmt::format("{}{}({} column{} left out)", before, before.empty() ? "" : " ", names,
                     names == 1 ? "" : "s");
}

// The last line of a section that is cut tells how much is missing.
void add(const Section& section, std::size_t columns, std::vector<std::string>* out) {
  if (section.cut() && section.room() == 0) return;
  const auto rows = section.lines.begin() + static_cast<std::ptrdiff_t>(section.head);
  const std::size_t first = section.cut() ? std::min(section.skip, section.rows() - section.room()) : 0;
  const std::size_t last = section.cut() ? first + section.room() : section.rows();
  out->insert(out->end(), section.lines.begin(), rows);
  out->insert(out->end(), rows + static_cast<std::ptrdiff_t>(first),
              rows + static_cast<std::ptrdiff_t>(last));
  if (section.cut())
    out->push_back(note_within(
        section.note, fmt::format("… {} to {} of {} {}", first + 1, last, section.rows(), section.what),
        columns));
  else if (!section.note.empty())
    out->push_back(note_within(section.note, "", columns));
}

Section ranks_section(const std::vector<Json>& ranks, bool several, std::size_t columns) {
  std::vector<config::Cells> rows;
  for (const Json& rank : ranks) {
    config::Cells row{fmt::format("{}", rank.at("rank").get<int>())};
    if (several) row.push_back(rank.at("node").get<std::string>());
    if (rank.at("attached").get<bool>()) {
      const std::string cells[] = {fmt::format("{}", rank.at("pid").get<int>()),
                                   rate(rank.at("ops_per_s").get<double>()),
                                   bytes_a_second(rank.at("bytes_per_s")),
                                   percent(rank.at("exposed").get<double>()),
                                   percent(rank.at("compute").get<double>()),
                                   fmt::format("{}", rank.at("in_flight").get<std::uint64_t>()),
                                   lag_text(rank),
                                   bytes_text(rank.at("buffer_bytes").get<std::uint64_t>())};
      row.insert(row.end(), std::begin(cells), std::end(cells));
    } else {
      row.insert(row.end(), 7, "-");
      row.emplace_back("not attached");
    }
    rows.push_back(std::move(row));
  }
  config::Cells titles{"RANK", "PID", "OPS/S", "BYTES/S", "EXPOSED", "COMPUTE", "IN FLIGHT", "LAG", "MEMORY"};
  if (several) titles.insert(titles.begin() + 1, "NODE");
  return section_of(config::table(titles, rows, {columns, {"PID", "COMPUTE", "IN FLIGHT", "OPS/S"}}),
                    "ranks");
}

// One line for each late rank.
Section late_section(const std::vector<Json>& ranks) {
  Section section{{}, 0, "late ranks"};
  for (const Json& rank : ranks) {
    const Json& lag = rank.at("lag");
    if (!rank.at("late").get<bool>() || lag.is_null()) continue;
    const auto groups = rank.at("late_in").get<std::uint64_t>();
    const Json& name = lag.at("group");
    section.lines.push_back(fmt::format(
        "rank {} comes late to {}{}: median {:.1f} ms behind the first; the others {:.2f} ms",
        rank.at("rank").get<int>(),
        name.is_string() ? name.get<std::string>()
                         : fmt::format("group {}", lag.at("group_id").get<std::uint64_t>()),
        groups > 1 ? fmt::format(" (and {} more group{})", groups - 1, groups == 2 ? "" : "s") : "",
        lag.at("median_ns").get<double>() * 1e-6, lag.at("others_ns").get<double>() * 1e-6));
  }
  return section;
}

// A line for each rank with units. A prefetch that the budget makes shallower says so.
Section units_section(const std::vector<Json>& ranks, std::size_t columns) {
  std::vector<config::Cells> rows;
  for (const Json& rank : ranks) {
    const Json& units = rank.at("units");
    if (units.is_null()) continue;
    const auto number = [&](const char* key) { return units.at(key).get<std::uint64_t>(); };
    const std::uint64_t budget = number("budget_bytes");
    rows.push_back({fmt::format("{}", rank.at("rank").get<int>()), bytes_text(number("whole_bytes")),
                    bytes_text(number("place_bytes")), budget == 0 ? "-" : bytes_text(budget),
                    number("prefetch") < number("prefetch_asked")
                        ? fmt::format("{} of {}", number("prefetch"), number("prefetch_asked"))
                        : fmt::format("{}", number("prefetch")),
                    rate(units.at("demands_per_s").get<double>()),
                    rate(units.at("skipped_per_s").get<double>()),
                    percent(rank.at("exposed").get<double>())});
  }
  if (rows.empty()) return {};
  return section_of(
      config::table(
          {"UNITS OF", "UNSHARDED", "AT MOST", "BUDGET", "PREFETCH", "ON DEMAND/S", "NO ROOM/S", "STALLED"},
          rows, {columns, {"NO ROOM/S", "AT MOST", "ON DEMAND/S", "PREFETCH", "BUDGET"}}),
      "ranks with units");
}

Section groups_section(const Json& now, std::size_t columns) {
  std::vector<config::Cells> rows;
  for (const Json& group : now.at("groups"))
    rows.push_back({fmt::format("{} {}{}", group.at("id").get<int>(), group.at("group").get<std::string>(),
                                group.contains("node") ? " on " + group.at("node").get<std::string>() : ""),
                    fmt::format("{}", group.at("ranks").get<std::uint64_t>()),
                    rate(group.at("ops_per_s").get<double>()), bytes_a_second(group.at("bytes_per_s")),
                    percent(group.at("exposed").get<double>()), percent(group.at("busy").get<double>()),
                    fmt::format("{}", group.at("in_flight").get<std::uint64_t>()),
                    fmt::format("{}", group.at("failed").get<std::uint64_t>())});
  return section_of(
      config::table({"GROUP", "RANKS", "OPS/S", "BYTES/S", "EXPOSED", "BUSY", "IN FLIGHT", "FAILED"}, rows,
                    {columns, {"BUSY", "IN FLIGHT", "RANKS", "OPS/S"}}),
      "groups");
}

std::string help_text() {
  std::string out = "Keys\n";
  for (const Order& order : kOrders)
    out += fmt::format("  {}     sort by {:<9}  {}\n", order.key, order.title, order.meaning);
  return out +
         "  i     the other way round\n"
         "  n, p  the next ranks, the previous ones\n"
         "  h     this help, and back\n"
         "  q     end\n"
         "A group is BUSY while one of its operations runs. UNSHARDED are the units that\n"
         "are whole now. ON DEMAND are gathers that no prefetch had started.\n";
}

std::string fitted(std::vector<std::string> lines, const TopView::Window& window) {
  if (window.rows > 0) lines.resize(std::min(lines.size(), window.rows - 1));
  std::string out;
  for (const std::string& line : lines) {
    const bool fits = utf8_characters(line) <= window.columns;
    out += fits ? line : line.substr(0, utf8_offset(line, window.columns - 1)) + "…";
    out += '\n';
  }
  return out;
}

}  // namespace

TopView::Window window_now() {
  TopView::Window window{config::screen_columns(), 0};
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return window;
  window.rows = size.ws_row;
  if (size.ws_col > 0) window.columns = std::min<std::size_t>(window.columns, size.ws_col);
  return window;
}

bool TopView::press(char key) {
  if (key == 'h' || key == '?') {
    help_ = !help_;
  } else if (key == 'i') {
    turned_ = !turned_;
  } else if (key == 'n') {
    ++page_;
  } else if (key == 'p') {
    page_ -= std::min<std::size_t>(page_, 1);
  } else {
    const auto order = std::find_if(std::begin(kOrders), std::end(kOrders),
                                    [&](const Order& each) { return each.key == key; });
    if (order == std::end(kOrders)) return false;
    order_ = static_cast<std::size_t>(order - std::begin(kOrders));
    turned_ = false;
    page_ = 0;
  }
  return true;
}

std::string TopView::text(const std::string& job, const Json& now, const Window& window) {
  const Order& order = kOrders[order_];
  const bool falling = order.falling != turned_;
  std::string head = fmt::format("job {}   engine {}", job, now.at("engine_pid").get<int>());
  if (now.at("engine_stuck").get<bool>())
    head += fmt::format(", SILENT for {:.1f} s: what follows is the last of it",
                        now.at("engine_silent_s").get<double>());
  else if (window.rows > 0)
    for (const std::string& part :
         {std::string("   h: keys   q: end"),
          fmt::format("   by {}, {} first", order.title, falling ? "highest" : "lowest")})
      if (head.size() + part.size() <= window.columns) head += part;
  std::vector<std::string> lines{printable(head, Lines::kOne)};
  if (help_) {
    Section help{lines_of(help_text()), 0, "lines"};
    help.shown = help.wanted();
    if (window.rows > 0)
      help.shown = std::min(help.shown, window.rows - std::min<std::size_t>(window.rows, 2));
    add(help, window.columns, &lines);
    return fitted(std::move(lines), window);
  }
  for (std::string& line : lines_of(top_nodes_text(now))) lines.push_back(std::move(line));
  const std::vector<Json> ranks = sorted(now.at("ranks"), order, falling);
  const std::size_t columns = window.columns;
  std::vector<Section> sections{ranks_section(ranks, now.contains("nodes"), columns), late_section(ranks),
                                units_section(ranks, columns), groups_section(now, columns)};
  std::size_t all = 0;
  for (Section& section : sections) all += section.shown = section.wanted();
  const std::size_t used = lines.size() + 1;  // and the line in which the cursor stands
  if (window.rows > 0 && used + all > window.rows)
    share_out(sections, window.rows - std::min(window.rows, used));
  Section& first = sections.front();
  const std::size_t pages = first.cut() && first.room() > 0 ? (first.rows() - 1) / first.room() : 0;
  page_ = std::min(page_, pages);
  first.skip = page_ * first.room();
  for (const Section& section : sections) add(section, columns, &lines);
  return fitted(std::move(lines), window);
}

}  // namespace muster::cli
