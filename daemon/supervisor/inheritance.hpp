// Inheritance: the descriptors that came with this process's start, each in its place by the name under which
// a predecessor or the service manager has kept it.
#pragma once

#include "daemon/supervisor/connections.hpp"
#include "daemon/supervisor/entrance.hpp"
#include "daemon/supervisor/running_jobs.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace muster::supervisor {

// Owns    the descriptors, until they are taken out. What comes twice is closed: the first counts.
// Thread  a value; one at a time.
// Bound   as many as came.
// Fails   never. What is not what its name says is closed, and logged.
class Inheritance {
 public:
  Inheritance(std::vector<Inherited> inherited, const std::string& runtime_directory);

  // Those of the entrance, as far as they belong together.
  Entrance::Kept entrance(const std::string& socket_path);

  shm::Descriptor state;
  std::map<std::uint64_t, RunningJobs::KeptEngine> engines;  // by epoch of the job
  std::map<std::uint64_t, shm::Descriptor> memories;         // pages, by user
  std::map<ConnectionId, shm::Descriptor> owners;
  std::set<std::string> names;  // that the service manager keeps, and nobody has asked for yet

 private:
  void put(Inherited inherited, const std::string& runtime_directory);
  void put_first(shm::Descriptor& target, Inherited inherited);
  void put_connection(shm::Descriptor& target, Inherited inherited);
  void put_listening(Inherited inherited);

  std::optional<ListenSocket> socket_, managers_;
  std::optional<PlaceLock> lock_;
  std::optional<RuntimeDirectory> directory_;
};

}  // namespace muster::supervisor
