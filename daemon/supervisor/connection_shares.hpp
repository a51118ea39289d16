// ConnectionShares: how many connections of one kind each user has, and whose is in the way of one more. A
// sans-IO core: the supervisor carries out what it decides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace muster::supervisor {

// Owns    a number for each user that has a connection.
// Thread  the supervisor's loop.
// Bound   `all` connections, `of_one` of any user who does not govern the daemon. `reserved` of them are for
//         those who do, root and the daemon's own user: nobody can lock them out.
// Fails   never.
class ConnectionShares {
 public:
  struct Limits {
    std::size_t all = 0;
    std::size_t reserved = 0;
    std::size_t of_one = 0;
  };
  ConnectionShares(Limits limits, std::uint32_t governor) : limits_(limits), governor_(governor) {}

  bool has_room(std::uint32_t uid) const;
  // Whether it is the user's own share that is used up.
  bool share_used(std::uint32_t uid) const;
  // Without room: the user one of whose connections makes room by going. The one who has most, so a crowd
  // pushes itself out and nobody else.
  std::uint32_t in_the_way(std::uint32_t uid) const;
  void enter(std::uint32_t uid);
  void leave(std::uint32_t uid);

 private:
  bool governs(std::uint32_t uid) const { return uid == 0 || uid == governor_; }

  Limits limits_;
  std::uint32_t governor_;
  std::map<std::uint32_t, std::size_t> of_;
  std::size_t all_ = 0;
  std::size_t others_ = 0;  // of users who do not govern
};

}  // namespace muster::supervisor
