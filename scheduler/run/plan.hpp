// Plan: validated work that a client may start any number of times (decision D5).
#pragma once

#include "api/base/collective/collective.hpp"
#include "api/base/collective/rooms.hpp"
#include "api/base/collective/signature.hpp"
#include "api/base/ids.hpp"
#include "kernels/kernel.hpp"
#include "transport/collective/communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace muster::scheduler {

// One kernel on one rank's device.
struct KernelWork {
  const kernels::Kernel* kernel = nullptr;
  kernels::Args args;
};

// One rank's part in a collective of its group.
struct CollectiveWork {
  GroupId group;
  Collective collective;
  Share share;
  Signature signature;
  std::string site;                       // place in the client's program, for reports; may be empty
  Rooms rooms{};                          // for starts with offsets of their own
  std::vector<FaceBalance> neighbours{};  // of an EXCHANGE: face_balances(share)

  std::int32_t index() const { return share.index; }  // of this rank in the group
  bool point_to_point() const { return is_transfer(collective.op); }
};

// 1, 2, … in this process. Any thread.
std::uint64_t next_plan_number();

// The object behind a client's plan handle. Only starts_in_flight and `prepared` change after creation.
struct Plan {
  // A collective as communicators have prepared it (decision D31), in the plan of its first member: for each
  // combination of its members' plans, which have numbers.
  //
  // Owns    what was prepared. A launch in flight may own it too.
  // Thread  that of the launches.
  // Bound   kMax combinations of plans; a new one replaces the oldest.
  // Fails   as Communicator::prepare().
  class Prepared {
   public:
    static constexpr std::size_t kMax = 4;
    struct Entry {
      std::vector<std::uint64_t> plans;
      std::shared_ptr<transport::Communicator::Prepared> prepared;
    };
    // Whether each(i) is plan i of an entry; nullptr: of none.
    template<class Each>
    const std::shared_ptr<transport::Communicator::Prepared>* find(std::size_t members, Each each) const {
      for (const Entry& entry : entries_) {
        bool same = entry.plans.size() == members;
        for (std::size_t i = 0; same && i < members; ++i) same = entry.plans[i] == each(i);
        if (same) return &entry.prepared;
      }
      return nullptr;
    }
    const std::shared_ptr<transport::Communicator::Prepared>& add(Entry entry);

   private:
    std::vector<Entry> entries_;
    std::size_t next_ = 0;  // the oldest, once there are kMax
  };

  std::variant<KernelWork, CollectiveWork> work;
  SessionId owner;          // the attachment that made it
  std::uint64_t bytes = 0;  // payload at this rank's target; 0 for kernels
  std::uint32_t starts_in_flight = 0;
  std::vector<Handle> buffers;                // held as long as the plan lives; each once
  std::uint64_t number = next_plan_number();  // no other plan of this process has it
  Prepared prepared{};

  const CollectiveWork* collective() const { return std::get_if<CollectiveWork>(&work); }
  const KernelWork* kernel() const { return std::get_if<KernelWork>(&work); }
  // "linear_forward", "all_reduce".
  const char* label() const;
};

}  // namespace muster::scheduler
