// Options: everything that a supervisor gets at its start.
#pragma once

#include "api/base/clock.hpp"
#include "api/shm/endpoint.hpp"
#include "daemon/control/job.hpp"
#include "daemon/supervisor/base/descriptor_store.hpp"
#include "daemon/supervisor/base/engine_process.hpp"
#include "daemon/supervisor/base/roster.hpp"
#include "daemon/supervisor/base/shares.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace muster::supervisor {

struct Options {
  std::string runtime_directory;  // of the sockets (api/shm/endpoint.hpp)
  std::string socket_path;        // the ranks' socket; empty: in the runtime directory
  std::uint32_t directory_mode = 0750;
  std::optional<std::uint32_t> directory_gid;  // the group of the users; else the daemon's
  bool transient = false;                      // for one run: the directory is removed at the end
  std::string engine_program;
  EngineProcess::User engine_user{65534, 65534};  // of jobs that belong to a container's root
  std::uint32_t jobs_max = 16;
  std::uint32_t jobs_per_user_max = 0;  // 0: Shares::limits_of()
  std::uint32_t sessions_max = 256;
  std::uint32_t sessions_per_user_max = 0;
  std::uint64_t memory_max = 0;  // bytes of all jobs; 0: three quarters of the machine's, or of the cgroup's
  std::uint64_t memory_per_user_max = 0;
  std::uint32_t ranks_per_job_max = 256;
  bool auto_create_jobs = true;
  // A job that a Hello made stays so long after its ranks have left. It also waits so long for an absent
  // node.
  Nanos made_job_linger = std::chrono::seconds(60);
  Nanos idle_timeout = std::chrono::seconds(30);  // of a connection that owns no job and asks nothing
  Nanos drain_timeout = std::chrono::seconds(10);
  NodeCosts costs;                     // 0: measured
  control::JobSpec job_defaults;       // limits and times of a job that does not set them
  std::vector<control::JobSpec> jobs;  // created at start
  Roster roster;                       // of the cluster; empty: this node stands alone
  std::function<control::WallTime()> wall_time = control::wall_time;  // for certificates' dates
  std::function<std::string()> random_hex;                            // 32 random bytes as text: tokens
  std::function<std::uint64_t()> random_word;                         // epochs, first serials
  DescriptorStore::Notify notify;                                     // to the service manager; may be empty
  std::size_t store_room = 0;                // descriptors that the manager keeps; 0: unknown
  Nanos watchdog_time{0};                    // the manager ends a daemon that is silent so long; 0: never
  std::string program;                       // path of this program, for an upgrade; empty: there is none
  std::vector<std::string> program_folders;  // from which an upgrade takes programs; empty: that of `program`
  std::vector<std::string> arguments;        // of this program, its name first

  // The daemon's own, in the runtime directory.
  std::string own_folder() const { return runtime_directory + "/" + shm::kOwnFolder; }
};

// A new epoch of a job; never 0.
std::uint64_t draw_epoch(const Options& options);

// The shares of sessions by account; none is entered yet.
Shares session_shares(const Options& options);

}  // namespace muster::supervisor
