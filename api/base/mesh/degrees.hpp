// Degrees: how many ways a job splits its work along each dim, as the user wrote it or resolved against a
// world.
//
// Owns    seven numbers.
// Thread  a value; any.
// Bound   a degree fits 31 bits, a world kRankCountMax ranks, the text kDegreesTextBytesMax bytes.
// Fails   parse() and resolve() with MUSTER_ERR_CONFIG. The message depends on the input alone, so all ranks
//         with the same input read the same error. No communication takes place.
#pragma once

#include "api/base/result.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster::mesh {

inline constexpr std::int64_t kRankCountMax = 65536;
inline constexpr char kUnsaidDegrees[] = "dp_shard=-1";   // for a job or a command that names no degrees
inline constexpr std::size_t kDegreesTextBytesMax = 256;  // with the final zero: muster_session_info::mesh

struct Degrees {
  // The data parallelism that degrees mean for parameters. A cp degree above 1 shards parameters even if
  // dp_shard is 1, because parameters are data-parallel over cp.
  enum class DataParallel : std::uint8_t { kNone, kDdp, kFsdp, kHsdp };

  static constexpr std::int64_t kInfer = -1;

  std::int64_t pp = 1;
  std::int64_t dp_replicate = 1;
  std::int64_t dp_shard = kInfer;  // the only one that may be kInfer
  std::int64_t cp = 1;
  std::int64_t domain = 1;
  std::int64_t tp = 1;
  std::int64_t ep = 1;  // factors dp_shard x cp x tp again; does not multiply the world

  // The names that parse() and find() know, in root order, then ep.
  static constexpr std::array<std::string_view, 7> kNames{"pp",     "dp_replicate", "dp_shard", "cp",
                                                          "domain", "tp",           "ep"};

  // "dp_replicate=2,dp_shard=-1,tp=2": any subset of kNames in any order; a missing name keeps its default.
  // Errors give the 1-based column. parse() checks the syntax; resolve() checks the degrees.
  static Result<Degrees> parse(std::string_view text);

  // The field of that name; null if there is none.
  std::int64_t* find(std::string_view name);

  // Checks, in this order: every degree, dp_shard, the value of -1, the product against the world, ep. The
  // result has no -1.
  Result<Degrees> resolve(std::int64_t world) const;

  // Resolved degrees only.
  bool fsdp_enabled() const { return dp_shard > 1 || cp > 1; }
  bool expert_view() const { return ep > 1; }
  DataParallel data_parallel() const;

  // "pp=1,dp_replicate=2,dp_shard=2,cp=1,tp=2"; domain (before tp) and ep (last) only where they are not 1.
  // parse() reads it back. Shorter than kDegreesTextBytesMax.
  std::string canonical() const;

  friend bool operator==(const Degrees&, const Degrees&) = default;
};
std::string_view data_parallel_name(Degrees::DataParallel mode);

}  // namespace muster::mesh
