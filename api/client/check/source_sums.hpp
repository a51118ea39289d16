// SourceSums: digests of what collectives in flight read, to see whether it stays as it is.
#pragma once

#include "api/base/hash.hpp"
#include "api/client/check/memory_use.hpp"

#include <muster/muster.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace muster::client {

// Of memory that a use writes itself, as in place, there is no digest.
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
    // Nothing, if they read nothing that they do not write.
    static std::optional<Sum> of(const MemoryUses& uses);
    // The use whose bytes are others than they were.
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
  // Takes the start's digest out.
  std::optional<Sum> take(muster_point point);
  // Another start writes this later, so it may change. Parts that are written are looked at no more.
  void forget_written(const MemoryUses& uses);

 private:
  std::map<muster_point, Sum> sums_;
};

}  // namespace muster::client
