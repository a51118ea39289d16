// A body that runs in a child of the test, with something taken from it.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <functional>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::test {

// Runs `body` in a confined child. Returns its result, 0 to 100; 101: this machine cannot confine it.
inline int in_child(const std::function<bool()>& confine, const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(confine() ? body() : 101);
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 102;
}

// As NFS does: renameat2 with a flag fails.
inline bool without_rename_flags() {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{4, code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Root may read every folder, so this becomes nobody.
inline bool as_nobody() {
  return geteuid() != 0 || seteuid(65534) == 0;
}

}  // namespace muster::test
