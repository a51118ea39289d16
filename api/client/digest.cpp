#include "api/client/digest.hpp"

#include "api/base/dtype.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace muster::client {
namespace {

constexpr std::size_t kNamedRanksMax = 16;  // a person reads the text
constexpr std::size_t kNamedSetsMax = 8;
constexpr std::size_t kTileBytes = 1024;  // elements that do not lie end to end are packed in tiles

// Owns    the state of one digest.
// Thread  one.
// Bound   -
// Fails   never.
class Digest {
 public:
  Digest() { XXH3_128bits_reset(&state_); }

  void add(const std::byte* data, std::uint64_t bytes) {
    if (bytes > 0) XXH3_128bits_update(&state_, data, bytes);
  }
  void add(const Face& view, std::size_t element) {
    if (view.count() > 0) add(view, 0, view.data, element);
  }
  Hash128 value() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    return {hash.low64, hash.high64};
  }

 private:
  // The elements of dims `dim` and inward, if they lie end to end; else 0.
  static std::uint64_t run_of(const Face& view, std::size_t dim) {
    std::int64_t run = 1;
    for (std::size_t d = static_cast<std::size_t>(view.dims); d-- > dim;) {
      if (view.size[d] != 1 && view.stride[d] != run) return 0;
      run *= view.size[d];
    }
    return static_cast<std::uint64_t>(run);
  }

  void add(const Face& view, std::size_t dim, const std::byte* from, std::size_t element) {
    if (const std::uint64_t run = run_of(view, dim); run > 0) return add(from, run * element);
    const std::int64_t step = view.stride[dim] * static_cast<std::int64_t>(element);
    if (dim + 1 == static_cast<std::size_t>(view.dims)) return add_apart(from, view.size[dim], step, element);
    for (std::int64_t i = 0; i < view.size[dim]; ++i) add(view, dim + 1, from + i * step, element);
  }
  void add_apart(const std::byte* from, std::int64_t count, std::int64_t step, std::size_t element) {
    std::array<std::byte, kTileBytes> tile;
    std::size_t filled = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      if (filled + element > tile.size()) add(tile.data(), std::exchange(filled, 0));
      std::memcpy(tile.data() + filled, from + i * step, element);
      filled += element;
    }
    add(tile.data(), filled);
  }

  XXH3_state_t state_;
};

std::string ranks_text(const std::vector<std::int32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size() && i < kNamedRanksMax; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > kNamedRanksMax) text += fmt::format(" and {} more", ranks.size() - kNamedRanksMax);
  return text;
}

// Members grouped by `value`, the largest group first.
template<class Value>
struct Set {
  Value value;
  std::vector<std::int32_t> ranks;
};
template<class ValueOf>
auto sets_of(std::span<const std::int32_t> ranks, std::span<const Held> held, ValueOf value_of) {
  std::vector<Set<decltype(value_of(held[0]))>> sets;
  for (std::size_t i = 0; i < held.size(); ++i) {
    const auto value = value_of(held[i]);
    auto set = std::find_if(sets.begin(), sets.end(), [&](const auto& s) { return s.value == value; });
    if (set == sets.end()) set = sets.insert(set, {value, {}});
    set->ranks.push_back(ranks[i]);
  }
  std::stable_sort(sets.begin(), sets.end(),
                   [](const auto& a, const auto& b) { return a.ranks.size() > b.ranks.size(); });
  return sets;
}

template<class Sets, class Words>
std::string sets_text(const Sets& sets, Words words) {
  std::string text;
  for (std::size_t i = 0; i < sets.size() && i < kNamedSetsMax; ++i)
    text += fmt::format("{}{} at {}", i == 0 ? "" : "; ", words(sets[i].value), ranks_text(sets[i].ranks));
  if (sets.size() > kNamedSetsMax) text += fmt::format("; and {} more values", sets.size() - kNamedSetsMax);
  return text;
}

// The first field in which the members' views differ in kind; empty: none.
std::string kinds_differ(std::span<const std::int32_t> ranks, std::span<const Held> held) {
  const auto number = [](const auto& value) { return fmt::format("{}", value); };
  const auto views = sets_of(ranks, held, [](const Held& h) { return h.views; });
  if (views.size() > 1) return "number of views: " + sets_text(views, number);
  const auto bytes = sets_of(ranks, held, [](const Held& h) { return h.bytes; });
  if (bytes.size() > 1) return "bytes: " + sets_text(bytes, number);
  const auto kinds = sets_of(ranks, held, [](const Held& h) { return h.kinds; });
  if (kinds.size() == 1) return {};
  return "dtypes and elements of the views: " +
         sets_text(kinds, [](std::uint32_t kind) { return fmt::format("{:08x} (a hash of them)", kind); });
}

}  // namespace

Held held_of(std::span<const Held::View> views) {
  Held held;
  Digest digest;
  Digest kinds;
  for (const Held::View& view : views) {
    const std::size_t element = dtype_bytes(view.dtype);
    const std::uint64_t kind[] = {static_cast<std::uint64_t>(view.dtype), view.face.count()};
    kinds.add(reinterpret_cast<const std::byte*>(kind), sizeof kind);
    digest.add(view.face, element);
    held.bytes += view.face.count() * element;
  }
  held.digest = digest.value();
  held.views = static_cast<std::uint32_t>(views.size());
  held.kinds = static_cast<std::uint32_t>(kinds.value().low);
  return held;
}

bool is_shared_result(const Collective& c, bool spans) noexcept {
  return row_of(c.op).same_for_all && (c.shared_memory == 0 || spans);
}

Held held_of(const Collective& c, const Share& mine) {
  // The root of a broadcast may have no target: then its source is compared.
  const bool gives = mine.target == nullptr || mine.target_blocks.empty();
  const std::size_t element = dtype_bytes(c.dtype);
  const std::byte* data = gives ? mine.source : mine.target;
  Held held;
  Digest digest;
  for (const Block& block : gives ? mine.source_blocks : mine.target_blocks) {
    if (block.count == 0) continue;
    digest.add(data + block.offset * element, block.count * element);
    held.bytes += block.count * element;
  }
  held.digest = digest.value();
  held.views = 1;
  return held;
}

std::string result_name(const Collective& c, std::string_view site) {
  return fmt::format("after {} of {}{}{}{}", op_name(c.op), dtype_name(c.dtype), site.empty() ? "" : " (",
                     site, site.empty() ? "" : ")");
}

Status judge(std::string_view what, std::span<const std::int32_t> ranks, std::span<const Held> held) {
  if (const std::string kinds = kinds_differ(ranks, held); !kinds.empty())
    return failure(Code::kMismatch, "{}: ranks disagree on what they compare: {}", what, kinds);
  const auto sets = sets_of(ranks, held, [](const Held& h) { return h.digest; });
  if (sets.size() < 2) return {};
  const std::string digests = sets_text(
      sets, [](const Hash128& digest) { return fmt::format("{:016x}{:016x}", digest.high, digest.low); });
  if (2 * sets.front().ranks.size() <= held.size())
    return failure(Code::kCorrupt,
                   "{}: members hold different bytes, and there is no majority; digests of {} bytes: {}",
                   what, held.front().bytes, digests);
  std::vector<std::int32_t> few;
  for (std::size_t i = 1; i < sets.size(); ++i)
    few.insert(few.end(), sets[i].ranks.begin(), sets[i].ranks.end());
  std::sort(few.begin(), few.end());
  return Status(Code::kCorrupt,
                fmt::format("{}: {} {} other bytes than the majority; digests of {} bytes: {}", what,
                            ranks_text(few), few.size() == 1 ? "holds" : "hold", held.front().bytes, digests),
                few.front());
}

}  // namespace muster::client
