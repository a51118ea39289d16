// Containers of podman in a test. They have this machine's programs and a folder of the test, read-only;
// their storage lies in that folder too. Needs root and no image.
#pragma once

#include "tests/daemon/cli/program.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <sys/resource.h>

namespace muster::test {

// Owns    all containers that it started: they are removed with it.
// Thread  the test's.
// Fails   as the started program does, with podman's reason in its errors.
class Podman {
 public:
  // Containers see /usr, the folder of the test and that of what was built.
  explicit Podman(const std::string& folder)
      : folder_(folder),
        built_(std::filesystem::path(MUSTER_PROGRAMS).parent_path()),
        place_(folder + "/podman") {
    for (const char* each : {"usr", "etc", "tmp", "proc", "sys", "dev", "run", "mnt"})
      std::filesystem::create_directories(place_ + "/image/" + each);
    for (const std::string each : {"bin", "sbin", "lib", "lib64"})
      std::filesystem::create_symlink("usr/" + each, place_ + "/image/" + each);
  }
  ~Podman() { run(command({"rm", "--force", "--all", "--time", "0"})); }
  Podman(const Podman&) = delete;
  Podman& operator=(const Podman&) = delete;

  // Why a container cannot be had here; empty if it can.
  std::string refusal() const {
    if (geteuid() != 0) return "needs root, to make containers";
    if (!std::filesystem::exists("/usr/bin/podman"))
      return "podman is not installed (deploy/setup.sh containers)";
    const Ran ran = run(start({}, "true"));
    return ran.code == 0 ? "" : "podman starts no container here: " + ran.err;
  }

  // The shell's text in a container with these options. Its variables but PATH, which podman itself needs,
  // are passed by name, and stand in no command line.
  Start start(const std::vector<std::string>& options, const std::string& text,
              const std::vector<std::string>& environment = {}) const {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);  // crun asks for more by itself, and may not get it
    const std::string files = std::to_string(limit.rlim_max);
    std::vector<std::string> words{"run", "--rm",
                                   // It ends also if the test is killed.
                                   "--timeout", "300", "--network", "none", "--tmpfs", "/tmp", "--ulimit",
                                   "nofile=" + files + ":" + files, "--ulimit", "nproc=4096:4096", "--volume",
                                   "/usr:/usr:ro", "--volume", "/etc/alternatives:/etc/alternatives:ro",
                                   "--volume", built_ + ":" + built_ + ":ro", "--volume",
                                   folder_ + ":" + folder_};
    words.insert(words.end(), options.begin(), options.end());
    for (const std::string& each : environment)
      words.insert(words.end(), {"--env", each.starts_with("PATH=") ? each : each.substr(0, each.find('='))});
    words.insert(words.end(), {"--rootfs", place_ + "/image", "/bin/sh", "-c", text});
    Start start = command(words);
    start.environment = environment;
    return start;
  }

  void kill_all() const { run(command({"kill", "--all"})); }

 private:
  // crun of Debian 12 refuses a system with both versions of cgroups, so version 2 is hidden from it.
  Start command(const std::vector<std::string>& words) const {
    std::vector<std::string> all{
        "/usr/bin/unshare",
        "--mount",
        "/bin/sh",
        "-c",
        "umount /sys/fs/cgroup/unified 2>/dev/null; PATH=/usr/sbin:/usr/bin:/sbin:/bin exec podman \"$@\"",
        "sh",
        "--root",
        place_ + "/storage",
        "--runroot",
        place_ + "/state",
        "--tmpdir",
        place_ + "/scratch",
        "--storage-driver",
        "vfs",
        "--cgroup-manager",
        "cgroupfs",
        "--events-backend",
        "file",
        "--runtime",
        "/usr/bin/crun"};
    all.insert(all.end(), words.begin(), words.end());
    return {all, {}, {}};
  }

  const std::string folder_, built_, place_;
};

}  // namespace muster::test
