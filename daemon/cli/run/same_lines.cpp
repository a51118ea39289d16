#include "daemon/cli/run/same_lines.hpp"

#include "api/base/words.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace muster::cli {
namespace {

// The line without its rank's own name.
std::string sentence_of(std::uint32_t rank, const std::string& line) {
  const std::string name = fmt::format("rank {}: ", rank);
  return line.starts_with(name) ? line.substr(name.size()) : line;
}

struct Said {
  std::vector<std::uint32_t> ranks;  // none: of no rank
  std::string line;                  // of the first
  std::string sentence;
};

std::string text_of(Said& said) {
  if (said.ranks.empty()) return said.line;
  std::sort(said.ranks.begin(), said.ranks.end());
  return fmt::format("[{}] {}\n", rank_list(said.ranks, ','),
                     said.ranks.size() == 1 ? said.line : said.sentence);
}

}  // namespace

void SameLines::add(std::uint32_t rank, std::string_view line) {
  entries_.push_back({rank, std::string(line)});
  bytes_ += line.size() + 1;
}

void SameLines::add_own(std::string_view text) {
  entries_.push_back({std::nullopt, std::string(text)});
  bytes_ += text.size();
}

std::string SameLines::take(Say how) {
  std::vector<Said> all;
  std::unordered_map<std::string, std::size_t> latest;  // by sentence
  std::map<std::uint32_t, std::size_t> last;            // by rank: behind its last line
  for (Entry& entry : entries_) {
    if (!entry.rank) {
      all.push_back({{}, std::move(entry.text), {}});
      continue;
    }
    std::string sentence = sentence_of(*entry.rank, entry.text);
    const auto same = latest.find(sentence);
    const bool joins = how == Say::kOnce && same != latest.end() && same->second >= last[*entry.rank];
    const std::size_t at = joins ? same->second : all.size();
    if (joins) {
      all[at].ranks.push_back(*entry.rank);
    } else {
      latest[sentence] = at;
      all.push_back({{*entry.rank}, std::move(entry.text), std::move(sentence)});
    }
    last[*entry.rank] = at + 1;
  }
  entries_.clear();
  bytes_ = 0;
  std::string text;
  for (Said& said : all) text += text_of(said);
  return text;
}

}  // namespace muster::cli
