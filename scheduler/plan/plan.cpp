#include "scheduler/plan/plan.hpp"

#include "api/base/dtype.hpp"

#include <bit>
#include <vector>

#include <fmt/format.h>
#include <xxhash.h>

namespace muster::scheduler {
namespace {

// SEND at one side and RECV at the other are one operation.
muster_op agreed_op(muster_op op) {
  return op == MUSTER_RECV ? MUSTER_SEND : op;
}

}  // namespace

Signature signature_of(const transport::Collective& c) {
  std::vector<std::uint64_t> words = {
      static_cast<std::uint64_t>(agreed_op(c.op)),
      static_cast<std::uint64_t>(c.dtype),
      static_cast<std::uint64_t>(c.redop),
      static_cast<std::uint64_t>(c.root),
      static_cast<std::uint64_t>(c.receiver),
      c.counts.empty() ? c.count : 0,
      std::bit_cast<std::uint64_t>(c.redop == MUSTER_PREMUL_SUM ? c.scale : 0.0),
      c.counts.size()};
  words.insert(words.end(), c.counts.begin(), c.counts.end());
  const XXH128_hash_t hash = XXH3_128bits(words.data(), words.size() * sizeof(std::uint64_t));
  return {hash.low64, hash.high64};
}

std::string difference(const transport::Collective& a, const transport::Collective& b) {
  if (agreed_op(a.op) != agreed_op(b.op)) return fmt::format("op: {} and {}", op_name(a.op), op_name(b.op));
  if (a.dtype != b.dtype) return fmt::format("dtype: {} and {}", dtype_name(a.dtype), dtype_name(b.dtype));
  if (a.redop != b.redop) return fmt::format("redop: {} and {}", redop_name(a.redop), redop_name(b.redop));
  if (a.root != b.root || a.receiver != b.receiver)
    return fmt::format("peer: {}→{} and {}→{}", a.root, a.receiver, b.root, b.receiver);
  if (a.counts.size() != b.counts.size())
    return fmt::format("counts: {} entries and {}", a.counts.size(), b.counts.size());
  for (std::size_t i = 0; i < a.counts.size(); ++i)
    if (a.counts[i] != b.counts[i]) return fmt::format("counts[{}]: {} and {}", i, a.counts[i], b.counts[i]);
  if (a.counts.empty() && a.count != b.count) return fmt::format("count: {} and {}", a.count, b.count);
  if (a.redop == MUSTER_PREMUL_SUM && a.scale != b.scale)
    return fmt::format("scale: {} and {}", a.scale, b.scale);
  return "";
}

const char* Plan::label() const {
  if (const auto* k = kernel()) return k->kernel->name;
  return op_name(collective()->collective.op);
}

const char* op_name(muster_op op) noexcept {
  switch (op) {
    case MUSTER_ALL_REDUCE:
      return "all_reduce";
    case MUSTER_ALL_GATHER:
      return "all_gather";
    case MUSTER_REDUCE_SCATTER:
      return "reduce_scatter";
    case MUSTER_BROADCAST:
      return "broadcast";
    case MUSTER_BARRIER:
      return "barrier";
    case MUSTER_SEND:
      return "send";
    case MUSTER_RECV:
      return "recv";
    default:
      return "unknown_op";
  }
}

const char* redop_name(muster_redop op) noexcept {
  switch (op) {
    case 0:
      return "none";
    case MUSTER_SUM:
      return "sum";
    case MUSTER_AVG:
      return "avg";
    case MUSTER_MAX:
      return "max";
    case MUSTER_MIN:
      return "min";
    case MUSTER_PROD:
      return "prod";
    case MUSTER_PREMUL_SUM:
      return "premul_sum";
    default:
      return "unknown_redop";
  }
}

const char* lane_name(std::uint32_t lane) noexcept {
  switch (lane) {
    case MUSTER_LANE_COMPUTE:
      return "compute";
    case MUSTER_LANE_HALO:
      return "halo";
    case MUSTER_LANE_SMALL:
      return "small";
    case MUSTER_LANE_GATHER:
      return "gather";
    case MUSTER_LANE_REDUCE:
      return "reduce";
    case MUSTER_LANE_ALLREDUCE:
      return "allreduce";
    case MUSTER_LANE_COPY:
      return "copy";
    default:
      return "unknown_lane";
  }
}

}  // namespace muster::scheduler
