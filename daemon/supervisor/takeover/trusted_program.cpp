#include "daemon/supervisor/takeover/trusted_program.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

Status changeable(const std::string& program, const std::string& part, const struct stat& facts) {
  const std::string who = facts.st_uid != 0 && facts.st_uid != geteuid()
                              ? fmt::format("user {}, to whom it belongs", facts.st_uid)
                              : fmt::format("others (mode {:04o})", facts.st_mode & 07777u);
  return failure(Code::kDenied,
                 "{} does not take over: {} can be changed by {}; install it where only root or user {} can "
                 "write",
                 program, part, who, geteuid());
}

// Others may neither write here nor, in a sticky folder, rename what is not theirs.
bool is_safe(const struct stat& facts) {
  const bool others_write = (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  const bool sticky = S_ISDIR(facts.st_mode) && (facts.st_mode & S_ISVTX) != 0;
  return (facts.st_uid == 0 || facts.st_uid == geteuid()) && (!others_write || sticky);
}

Status check_folders_above(const std::filesystem::path& program) {
  for (auto folder = program.parent_path();; folder = folder.parent_path()) {
    struct stat facts {};
    if (lstat(folder.c_str(), &facts) != 0)
      return failure(Code::kDenied, "{} does not take over: {}: {}", program.string(), folder.string(),
                     std::strerror(errno));
    if (!is_safe(facts)) return changeable(program, folder, facts);
    if (folder == folder.root_path()) return {};
  }
}

bool lies_in(const std::filesystem::path& program, const std::vector<std::string>& folders) {
  return std::any_of(folders.begin(), folders.end(), [&](const std::string& folder) {
    std::error_code gone;
    return std::filesystem::canonical(folder, gone) == program.parent_path();
  });
}

}  // namespace

Result<TrustedProgram> TrustedProgram::open(const std::string& path,
                                            const std::vector<std::string>& folders) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::canonical(path, error);
  if (error) return fail(Code::kBadArgument, "{} cannot be run: {}; name a musterd", path, error.message());
  if (!lies_in(program, folders))
    return fail(Code::kBadArgument,
                "{} does not take over: programs are taken from {} (node.program_folders)", program.string(),
                fmt::join(folders, ", "));
  MUSTER_RETURN_IF_ERROR(check_folders_above(program));
  shm::Descriptor file(::open(program.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat facts {};
  if (!file.valid() || fstat(file.get(), &facts) != 0)
    return fail(Code::kDenied, "{} cannot be run: {}; name a musterd", path, std::strerror(errno));
  if (!S_ISREG(facts.st_mode) || faccessat(file.get(), "", X_OK, AT_EMPTY_PATH | AT_EACCESS) != 0)
    return fail(Code::kDenied, "{} cannot be run: Permission denied; name a musterd", path);
  if (!is_safe(facts)) return fail(changeable(program, program, facts));
  return TrustedProgram(program, std::move(file));
}

shm::Descriptor TrustedProgram::copy_above(int least) const {
  return shm::Descriptor(fcntl(file_.get(), F_DUPFD_CLOEXEC, least));
}

// A script needs its descriptor after the exec, where the kernel opens it once more by that.
int TrustedProgram::execute(int file, char* const* arguments, char* const* environment) {
  syscall(SYS_execveat, file, "", arguments, environment, AT_EMPTY_PATH);
  if (errno != ENOENT) return errno;
  fcntl(file, F_SETFD, 0);
  syscall(SYS_execveat, file, "", arguments, environment, AT_EMPTY_PATH);
  const int error = errno;
  fcntl(file, F_SETFD, FD_CLOEXEC);
  return error;
}

Result<std::vector<std::string>> program_folders(const std::string& list) {
  std::vector<std::string> folders;
  for (std::size_t from = 0; from < list.size();) {
    const std::size_t end = std::min(list.find(':', from), list.size());
    folders.push_back(list.substr(from, end - from));
    if (folders.back().empty() || folders.back()[0] != '/')
      return fail(Code::kBadArgument, "node.program_folders: '{}' is no absolute path; write '/a:/b'",
                  folders.back());
    from = end + 1;
  }
  return folders;
}

}  // namespace muster::supervisor
