// FolderLock: one run at a time saves into a folder. Two of them would remove each other's checkpoints.
#pragma once

#include <string>

namespace training {

// Owns    a lock (flock) on FOLDER/.PROGRAM.lock, in which the holder's process is named. The kernel ends it
//         with the process and its writers, however they end. The file stays.
// Thread  one.
// Bound   waits a few seconds, because a run that was killed may still be ending.
// Fails   the constructor: UsageError that names the process that holds it; OutputError.
class FolderLock {
 public:
  FolderLock(const std::string& folder, const std::string& program);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_;
};

}  // namespace training
