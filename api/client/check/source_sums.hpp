// SourceSums: digests of the memory that collectives in flight read. They show whether it stays unchanged.
#pragma once

#include "api/base/hash.hpp"
#include "api/client/check/memory_use.hpp"

#include <muster/muster.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace muster::client {

// Memory that a use writes itself, as in an operation in place, has no digest.
//
// Owns    the digests.
// Thread  the session's.
// Bound   one for each start in flight.
// Fails   never.
class SourceSums {
 public:
  // The bytes that the uses read, and which of them changed.
  class Sum {
   public:
    // Nothing, if the uses read no memory but that which they write.
    static std::optional<Sum> of(const MemoryUses& uses);
    // The use whose bytes have changed; null, if there is none.
    const MemoryUse* changed() const;

   private:
    friend class SourceSums;
    struct Part {
      MemoryUse use;
      Hash128 digest;
    };
    std::vector<Part> parts_;
  };

  void add(muster_point point, Sum sum) { sums_.insert_or_assign(point, std::move(sum)); }
  // Removes the digest of the start and returns it.
  std::optional<Sum> take(muster_point point);
  // A later start writes this memory, so it may change. Digests of the parts that it writes are dropped.
  void forget_written(const MemoryUses& uses);

 private:
  std::map<muster_point, Sum> sums_;
};

}  // namespace muster::client
