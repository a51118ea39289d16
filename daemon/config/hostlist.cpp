#include "daemon/config/hostlist.hpp"

#include "api/base/network/ip_address.hpp"
#include "api/base/utf8.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace muster::config {
namespace {

constexpr std::size_t kNameMax = 253;       // of a host, as DNS has it
constexpr std::size_t kRangeDigitsMax = 9;  // of a number in brackets
constexpr std::size_t kBracketsMax = 4;     // in one name

bool name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '-' || c == '.' || c == '_';
}

// One name of the list: literal texts around brackets.
struct Pattern {
  struct Range {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    std::size_t width = 0;  // digits to pad to; 0: none
    std::size_t offset = 0;
    std::uint64_t count() const { return high - low + 1; }
  };
  std::vector<std::string> literals{""};  // one more than brackets
  std::vector<std::vector<Range>> brackets;
  std::size_t offset = 0;

  std::uint64_t count() const {
    std::uint64_t product = 1;
    for (const auto& bracket : brackets) {
      std::uint64_t sum = 0;
      for (const Range& range : bracket) sum += range.count();
      // Four brackets of 10^9 each would overflow; far above any limit, the exact product does not matter.
      product = std::min<std::uint64_t>(product * std::min<std::uint64_t>(sum, 1u << 20), 1ull << 40);
    }
    return product;
  }
};

Complaint name_too_long(std::size_t offset) {
  return {fmt::format("a host name has at most {} characters", kNameMax), "", offset};
}

std::string number_text(std::uint64_t value, std::size_t width) {
  return fmt::format("{:0{}}", value, width);
}

// Reads the list from left to right; stops at the first fault.
//
// Owns    its position and the patterns read so far.
// Thread  one.
// Bound   the text.
// Fails   with the complaint that says where.
class Reader {
 public:
  enum class Ipv6 : std::uint8_t { kNo, kYes };  // whether names may also be numbers of IPv6
  Reader(std::string_view text, Ipv6 ipv6) : text_(text), ipv6_(ipv6) {}

  tl::expected<std::vector<Pattern>, Complaint> read() {
    if (text_.empty())
      return tl::unexpected(Complaint{"a hostlist names at least one host", "write node[01-16]"});
    do {
      Pattern pattern;
      pattern.offset = at_;
      if (auto fault = read_name(&pattern)) return tl::unexpected(std::move(*fault));
      patterns_.push_back(std::move(pattern));
    } while (take(','));
    return std::move(patterns_);
  }

 private:
  bool done() const { return at_ == text_.size(); }
  bool take(char c) {
    if (done() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Complaint fault(std::string message, std::string suggestion = "") const {
    return {std::move(message), std::move(suggestion), at_};
  }

  std::optional<Complaint> read_name(Pattern* pattern) {
    if (done() || text_[at_] == ',')
      return fault("a host name is missing between commas", "remove the comma");
    if (text_[at_] == '-' || text_[at_] == '.') return fault("a host name starts with a letter or a digit");
    while (!done() && text_[at_] != ',') {
      const char c = text_[at_];
      if (c == '[') {
        if (text_.substr(at_, text_.find(']', at_) - at_).find(':') != std::string_view::npos)
          return fault("a number of IPv6 in brackets", "write it without them");
        if (pattern->brackets.size() == kBracketsMax)
          return fault(fmt::format("a name has at most {} brackets", kBracketsMax));
        if (auto bad = read_bracket(pattern)) return bad;
        pattern->literals.emplace_back();
      } else if (name_character(c) || (c == ':' && ipv6_ == Ipv6::kYes)) {
        pattern->literals.back() += c;
        ++at_;
      } else if (c == ']') {
        return fault("']' without '['");
      } else if (c == ' ') {
        return fault("a hostlist has no spaces", "remove the space");
      } else {
        return fault(fmt::format("{} is not allowed in a host name", in_quotes(text_.substr(at_, 1))),
                     c == ':' ? "a number of IPv6 belongs into `address`"
                              : "use letters, digits, '-', '.', '_' and [ranges]");
      }
    }
    return too_long(*pattern);
  }

  // Checked before any host is made: a long name times a range would take much memory.
  static std::optional<Complaint> too_long(const Pattern& pattern) {
    std::size_t length = 0;
    for (const std::string& literal : pattern.literals) length += literal.size();
    if (length <= kNameMax) return std::nullopt;
    return name_too_long(pattern.offset);
  }

  std::optional<Complaint> read_bracket(Pattern* pattern) {
    const std::size_t open = at_++;
    std::vector<Pattern::Range> ranges;
    do {
      Pattern::Range range;
      if (auto bad = read_range(&range)) return bad;
      ranges.push_back(range);
    } while (take(','));
    if (!take(']')) {
      if (done()) return Complaint{"'[' is not closed", "write ']' after the last number", open};
      return fault(fmt::format("{} is not allowed in brackets", in_quotes(text_.substr(at_, 1))),
                   "write numbers and ranges, such as [01-16,20]");
    }
    pattern->brackets.push_back(std::move(ranges));
    return overlap(pattern->brackets.back());
  }

  std::optional<Complaint> read_range(Pattern::Range* range) {
    range->offset = at_;
    std::string_view low, high;
    if (auto bad = read_digits(&low)) return bad;
    high = low;
    const std::size_t dash = at_;
    if (take('-'))
      if (auto bad = read_digits(&high)) return bad;
    const bool padded = low.size() > 1 && low[0] == '0';
    const bool high_padded = high.size() > 1 && high[0] == '0';
    if ((padded || high_padded) && low.size() != high.size()) {
      const std::size_t width = std::max(low.size(), high.size());
      return Complaint{
          fmt::format("'{}' and '{}' are padded to different widths", low, high),
          fmt::format("write {}-{}", number_text(value_of(low), width), number_text(value_of(high), width)),
          range->offset};
    }
    range->low = value_of(low);
    range->high = value_of(high);
    range->width = padded || high_padded ? low.size() : 0;
    if (range->low > range->high)
      return Complaint{fmt::format("the range '{}-{}' runs backwards", low, high),
                       fmt::format("write {}-{}", high, low), dash};
    return std::nullopt;
  }

  std::optional<Complaint> read_digits(std::string_view* digits) {
    const std::size_t begin = at_;
    while (!done() && is_digit(text_[at_])) ++at_;
    *digits = text_.substr(begin, at_ - begin);
    if (digits->empty()) return fault("a number is missing", "write numbers and ranges, such as [01-16,20]");
    if (digits->size() > kRangeDigitsMax)
      return Complaint{fmt::format("'{}' has more than {} digits", *digits, kRangeDigitsMax), "", begin};
    return std::nullopt;
  }

  static std::uint64_t value_of(std::string_view digits) {
    std::uint64_t value = 0;
    for (const char c : digits) value = value * 10 + static_cast<std::uint64_t>(c - '0');
    return value;
  }

  // Ranges with different padding name different hosts: node1 is not node01. Sorted, because a text may hold
  // many ranges.
  static std::optional<Complaint> overlap(std::vector<Pattern::Range> ranges) {
    std::sort(ranges.begin(), ranges.end(), [](const Pattern::Range& a, const Pattern::Range& b) {
      return std::tie(a.width, a.low, a.offset) < std::tie(b.width, b.low, b.offset);
    });
    for (std::size_t i = 1; i < ranges.size(); ++i) {
      const Pattern::Range &a = ranges[i - 1], &b = ranges[i];
      if (a.width != b.width || b.low > a.high) continue;
      return Complaint{fmt::format("{} is named twice", number_text(b.low, b.width)), "remove one of them",
                       std::max(a.offset, b.offset)};
    }
    return std::nullopt;
  }

  std::string_view text_;
  const Ipv6 ipv6_;
  std::size_t at_ = 0;
  std::vector<Pattern> patterns_;
};

void append_hosts(const Pattern& pattern, std::size_t bracket, const std::string& prefix,
                  std::vector<std::string>* hosts) {
  const std::string begin = prefix + pattern.literals[bracket];
  if (bracket == pattern.brackets.size()) {
    hosts->push_back(begin);
    return;
  }
  for (const Pattern::Range& range : pattern.brackets[bracket])
    for (std::uint64_t value = range.low; value <= range.high; ++value)
      append_hosts(pattern, bracket + 1, begin + number_text(value, range.width), hosts);
}

// A name with a colon has to be a number that all nodes reach.
std::optional<Complaint> number_fault(const std::string& host, std::size_t offset) {
  if (host.find(':') == std::string::npos) return std::nullopt;
  const auto address = IpAddress::parse(host);
  if (!address) return Complaint{fmt::format("{} is no address of IPv6", in_quotes(host)), "", offset};
  if (!address->link_local()) return std::nullopt;
  return Complaint{fmt::format("{} means something on one link alone", in_quotes(host)),
                   "give an address that all nodes reach", offset};
}

tl::expected<std::vector<std::string>, Complaint> expand(std::string_view text, std::size_t limit,
                                                         Reader::Ipv6 ipv6) {
  auto patterns = Reader(text, ipv6).read();
  if (!patterns) return tl::unexpected(std::move(patterns).error());
  std::uint64_t total = 0;
  for (const Pattern& pattern : *patterns) {
    total += pattern.count();
    if (total > limit)
      return tl::unexpected(
          Complaint{fmt::format("too many hosts; at most {} fit here", limit), "name fewer", pattern.offset});
  }
  std::vector<std::string> hosts;
  hosts.reserve(total);
  std::unordered_map<std::string_view, std::size_t> seen;
  std::vector<std::size_t> offsets;
  for (const Pattern& pattern : *patterns) {
    append_hosts(pattern, 0, "", &hosts);
    offsets.resize(hosts.size(), pattern.offset);
  }
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i].size() > kNameMax) return tl::unexpected(name_too_long(offsets[i]));
    if (auto fault = number_fault(hosts[i], offsets[i])) return tl::unexpected(std::move(*fault));
    if (!seen.emplace(hosts[i], i).second)
      return tl::unexpected(Complaint{fmt::format("host {} is named twice", in_quotes(hosts[i])),
                                      "remove one of them", offsets[i]});
  }
  return hosts;
}

}  // namespace

tl::expected<std::vector<std::string>, Complaint> expand_hosts(std::string_view text, std::size_t limit) {
  return expand(text, limit, Reader::Ipv6::kNo);
}

tl::expected<std::vector<std::string>, Complaint> expand_addresses(std::string_view text) {
  return expand(text, kHostsMax, Reader::Ipv6::kYes);
}

}  // namespace muster::config
