// NamedMemory: memory of a job that outlives the sessions that use it, and that ranks may share.
//
// A restarted trainer asks for a name and finds the contents. Members of a group that ask for one name share
// one memory. A name goes when its last holder frees it. If the last holder's session only ends, the memory
// stays for the next one.
#pragma once

#include "api/base/ids.hpp"
#include "api/base/result.hpp"
#include "kernels/device/device.hpp"

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace muster::engine {

// The users of a name: one rank alone, or a group.
struct NameScope {
  enum class Kind : std::uint8_t { kRank, kGroup };
  Kind kind = Kind::kRank;
  std::uint32_t id = 0;
  friend auto operator<=>(const NameScope&, const NameScope&) = default;
};

// Owns    the memory behind every name.
// Thread  the conductor.
// Bound   names_max names, bytes_max bytes in all.
// Fails   open: kBadArgument (the name has another size), kNoResource.
class NamedMemory {
 public:
  struct Options {
    std::uint64_t bytes_max = 0;
    std::uint32_t names_max = 0;
  };
  NamedMemory(device::Device& device, Options options) : device_(device), options_(options) {}
  NamedMemory(const NamedMemory&) = delete;
  NamedMemory& operator=(const NamedMemory&) = delete;

 private:
  using Key = std::pair<NameScope, std::string>;
  struct Entry {
    std::shared_ptr<device::Memory> memory;
    std::uint64_t identity = 0;
    std::uint64_t bytes = 0;  // as asked for
    std::uint32_t holders = 0;
  };

 public:
  // One holder's stake in a name.
  //
  // Owns    its count among the holders, until it is destroyed (the memory stays) or dropped.
  // Thread  the conductor.  Bound  lives no longer than the NamedMemory.  Fails  never.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept { swap(other); }
    Hold& operator=(Hold&& other) noexcept {
      swap(other);
      return *this;
    }
    ~Hold();

    bool valid() const { return home_ != nullptr; }
    const std::shared_ptr<device::Memory>& memory() const { return at_->second.memory; }
    // Which memory it is: equal for all holders of one name on this node, never used again. Not 0.
    std::uint64_t identity() const { return at_->second.identity; }
    // The name existed before, so the memory has its contents.
    bool found() const { return found_; }
    // Gives the hold up for good. The last holder's drop ends the name and returns the memory.
    std::shared_ptr<device::Memory> drop();

   private:
    friend class NamedMemory;
    Hold(NamedMemory* home, std::map<Key, Entry>::iterator at, bool found)
        : home_(home), at_(at), found_(found) {}
    void swap(Hold& other) noexcept {
      std::swap(home_, other.home_);
      std::swap(at_, other.at_);
      std::swap(found_, other.found_);
    }
    NamedMemory* home_ = nullptr;
    std::map<Key, Entry>::iterator at_;
    bool found_ = false;
  };

  // The memory under this name; zeroed if the name is new. bytes > 0.
  Result<Hold> open(NameScope scope, const std::string& name, std::uint64_t bytes);

  bool any_in(NameScope scope) const;
  // Ends the names without a holder; appends their memory.
  void forget_all_in(NameScope scope, std::vector<std::shared_ptr<device::Memory>>& gone);
  std::size_t names() const { return entries_.size(); }
  std::uint64_t bytes() const { return bytes_; }

 private:
  device::Device& device_;
  Options options_;
  std::map<Key, Entry> entries_;  // its iterators stay valid: holds keep them
  std::uint64_t bytes_ = 0;
  std::uint64_t identities_ = 0;
};

}  // namespace muster::engine
