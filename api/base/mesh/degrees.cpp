#include "api/base/mesh/degrees.hpp"

#include "api/base/assert.hpp"
#include "api/base/mesh/dim_table.hpp"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <utility>

namespace muster::mesh {
namespace {

constexpr std::int64_t kDegreeMax = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kSaturated = std::numeric_limits<std::int64_t>::max();

// Six 31-bit factors can exceed 64 bits. A saturated product is enough, because it exceeds every world.
std::int64_t product(std::initializer_list<std::int64_t> factors) {
  std::int64_t result = 1;
  for (const std::int64_t factor : factors)
    if (__builtin_mul_overflow(result, factor, &result)) return kSaturated;
  return result;
}

std::string product_text(std::int64_t value) {
  return value == kSaturated ? "more than 9.2e18" : fmt::format("{}", value);
}

// Reads "name=value,…" from left to right. An error names the column where the faulty text starts.
class TextReader {
 public:
  explicit TextReader(std::string_view text) : text_(text) {}

  Result<Degrees> read() {
    if (text_.empty())
      return fail(Code::kConfig, "mesh \"\": it names no dim; write for example \"dp_shard=-1\"");
    if (text_.size() >= kDegreesTextBytesMax)
      return fail(Code::kConfig, "the mesh text has {} bytes; at most {} are allowed", text_.size(),
                  kDegreesTextBytesMax - 1);
    std::size_t begin = 0;
    while (true) {
      const std::size_t comma = text_.find(',', begin);
      const std::size_t end = comma == std::string_view::npos ? text_.size() : comma;
      MUSTER_RETURN_IF_ERROR(read_entry(begin, end));
      if (comma == std::string_view::npos) return degrees_;
      begin = comma + 1;
    }
  }

 private:
  template<class... Args>
  Status error(std::size_t at, fmt::format_string<Args...> format, Args&&... args) const {
    return failure(Code::kConfig, "mesh \"{}\", column {}: {}", text_, at + 1,
                   fmt::format(format, std::forward<Args>(args)...));
  }

  Status read_entry(std::size_t begin, std::size_t end) {
    const std::string_view entry = text_.substr(begin, end - begin);
    const std::size_t equals = entry.find('=');
    if (entry.empty()) return error(begin, "nothing between commas; write name=size");
    if (equals == std::string_view::npos) return error(begin, "\"{}\" has no size; write name=size", entry);
    const std::string_view name = entry.substr(0, equals);
    std::int64_t* field = degrees_.find(name);
    if (field == nullptr) return unknown(begin, name);
    const auto index = static_cast<std::size_t>(
        std::find(Degrees::kNames.begin(), Degrees::kNames.end(), name) - Degrees::kNames.begin());
    if (seen_at_[index] != 0)
      return error(begin, "\"{}\" was given before, at column {}; give it once", name, seen_at_[index]);
    seen_at_[index] = begin + 1;
    return read_size(begin + equals + 1, name, entry.substr(equals + 1), field);
  }

  Status unknown(std::size_t at, std::string_view name) const {
    const std::string names = fmt::format("{}", fmt::join(Degrees::kNames, ", "));
    if (is_derived_name(name))
      return error(at, "\"{}\" is derived from the basic dims and takes no size; the dims are {}", name,
                   names);
    const std::string_view nearest = nearest_name(name, Degrees::kNames);
    if (!nearest.empty())
      return error(at, "unknown dim \"{}\"; did you mean \"{}\"? The dims are {}", name, nearest, names);
    return error(at, "unknown dim \"{}\"; the dims are {}", name, names);
  }

  Status read_size(std::size_t at, std::string_view name, std::string_view number, std::int64_t* size) const {
    const std::string_view digits = number.starts_with('-') ? number.substr(1) : number;
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos)
      return error(at, "the size of \"{}\" is \"{}\", which is not a whole number in decimal digits", name,
                   number);
    // Some notations read 010 as eight, so refuse leading zeros.
    if (digits.size() > 1 && digits.front() == '0')
      return error(at, "the size of \"{}\" is \"{}\"; write it without leading zeros", name, number);
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), *size);
    if (parsed.ec != std::errc{} || *size > kDegreeMax || *size < -kDegreeMax)
      return error(at, "the size of \"{}\" is {}, which is out of range; the largest size is {}", name,
                   number, kDegreeMax);
    return {};
  }

  std::string_view text_;
  Degrees degrees_;
  std::array<std::size_t, Degrees::kNames.size()> seen_at_{};  // column, 0: not yet
};

}  // namespace

std::string_view data_parallel_name(Degrees::DataParallel mode) {
  switch (mode) {
    case Degrees::DataParallel::kNone:
      return "none";
    case Degrees::DataParallel::kDdp:
      return "ddp";
    case Degrees::DataParallel::kFsdp:
      return "fsdp";
    case Degrees::DataParallel::kHsdp:
      return "hsdp";
  }
  MUSTER_ASSERT(false);
}

Result<Degrees> Degrees::parse(std::string_view text) {
  return TextReader(text).read();
}

std::int64_t* Degrees::find(std::string_view name) {
  const std::array<std::int64_t*, kNames.size()> fields{&pp,     &dp_replicate, &dp_shard, &cp,
                                                        &domain, &tp,           &ep};
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return fields[i];
  return nullptr;
}

Result<Degrees> Degrees::resolve(std::int64_t world) const {
  if (world < 1 || world > kRankCountMax)
    return fail(Code::kConfig, "the world has {} ranks; it must have 1 to {}", world, kRankCountMax);
  const std::pair<std::string_view, std::int64_t> positive[] = {
      {"dp_replicate", dp_replicate}, {"cp", cp}, {"tp", tp}, {"pp", pp}, {"ep", ep}, {"domain", domain}};
  for (const auto& [name, degree] : positive)
    if (degree < 1)
      return fail(Code::kConfig, "{} is {}; it must be at least 1 (only dp_shard may be -1)", name, degree);
  if (dp_shard != kInfer && dp_shard < 1)
    return fail(Code::kConfig, "dp_shard is {}; it must be -1 (what is left of the world) or at least 1",
                dp_shard);

  Degrees resolved = *this;
  std::string origin;
  if (dp_shard == kInfer) {
    const std::int64_t others = product({dp_replicate, cp, domain, tp, pp});
    resolved.dp_shard = world / others;
    if (resolved.dp_shard == 0)
      return fail(Code::kConfig,
                  "dp_shard is -1, but dp_replicate {} x cp {} x domain {} x tp {} x pp {} = {} already "
                  "needs more than "
                  "the {} ranks of the world; lower a degree or start more ranks",
                  dp_replicate, cp, domain, tp, pp, product_text(others), world);
    origin = fmt::format(" (dp_shard -1 was taken as {} div {})", world, others);
  }
  const Degrees& r = resolved;
  const std::int64_t total = product({r.pp, r.dp_replicate, r.dp_shard, r.cp, r.domain, r.tp});
  if (total != world)
    return fail(Code::kConfig,
                "pp {} x dp_replicate {} x dp_shard {} x cp {} x domain {} x tp {} = {}, but the world has "
                "{} ranks{}; "
                "the product must be the world",
                r.pp, r.dp_replicate, r.dp_shard, r.cp, r.domain, r.tp, product_text(total), world, origin);
  const std::int64_t expert_ranks = product({r.dp_shard, r.cp, r.tp});
  if (expert_ranks % r.ep != 0)
    return fail(Code::kConfig, "ep is {}; it must divide dp_shard {} x cp {} x tp {} = {}", r.ep, r.dp_shard,
                r.cp, r.tp, expert_ranks);
  return resolved;
}

Degrees::DataParallel Degrees::data_parallel() const {
  if (fsdp_enabled()) return dp_replicate > 1 ? DataParallel::kHsdp : DataParallel::kFsdp;
  return dp_replicate > 1 ? DataParallel::kDdp : DataParallel::kNone;
}

std::string Degrees::canonical() const {
  std::string text = fmt::format("pp={},dp_replicate={},dp_shard={},cp={}", pp, dp_replicate, dp_shard, cp);
  if (domain != 1) text += fmt::format(",domain={}", domain);
  text += fmt::format(",tp={}", tp);
  if (ep != 1) text += fmt::format(",ep={}", ep);
  MUSTER_ASSERT(text.size() < kDegreesTextBytesMax);
  return text;
}

}  // namespace muster::mesh
