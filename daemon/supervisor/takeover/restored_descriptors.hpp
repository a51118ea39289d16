// RestoredDescriptors: sorts the descriptors that came with this process's start by name. A predecessor or
// the service manager has kept them under these names.
#pragma once

#include "daemon/supervisor/jobs/running_jobs.hpp"
#include "daemon/supervisor/listener/connections.hpp"
#include "daemon/supervisor/listener/listeners.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace muster::supervisor {

// Owns    the descriptors, until they are taken out. The second of two for the same use is closed.
// Thread  a value; one at a time.
// Bound   as many as came.
// Fails   never. A descriptor that does not fit its name is closed, and logged.
class RestoredDescriptors {
 public:
  RestoredDescriptors(std::vector<DescriptorStore::Inherited> inherited,
                      const std::string& runtime_directory);

  // The FileDescriptorName= of the service manager's socket for governors. Any other is for ranks.
  static constexpr const char* kManagersControl = "control";

  // The descriptors of the listeners, as far as they belong together.
  Listeners::Kept listeners(const Listeners::Options& options);

  shm::Descriptor state;
  std::map<std::uint64_t, RunningJobs::KeptEngine> engines;  // by epoch of the job
  std::map<control::Account, shm::Descriptor> memories;      // pages
  std::map<Connections::Id, shm::Descriptor> owners;
  std::set<std::string> names;  // kept by the service manager, and not yet asked for

 private:
  void put(DescriptorStore::Inherited inherited, const std::string& runtime_directory);
  control::Identity::Handles& place_of(std::uint64_t epoch);
  void put_first(shm::Descriptor& target, DescriptorStore::Inherited inherited);
  void put_connection(shm::Descriptor& target, DescriptorStore::Inherited inherited);
  void put_listening(DescriptorStore::Inherited inherited);

  // At one door, before it is known which of them counts.
  struct Found {
    std::optional<ListenSocket> ours, managers;
  };
  static Listeners::Kept::Sockets choose(Found found, const std::string& path);

  Found ranks_, control_;
  std::optional<DirectoryLock> lock_;
  std::optional<RuntimeDirectory> directory_;
};

}  // namespace muster::supervisor
