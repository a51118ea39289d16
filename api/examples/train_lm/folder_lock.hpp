// FolderLock: one run at a time saves into a folder. Two of them would remove each other's checkpoints.
#pragma once

#include <string>

namespace train_lm {

// Owns    a lock (flock) on FOLDER/.train_lm.lock, in which the holder's process is named. The kernel ends it
//         with the process and its writers, however they end. The file stays.
// Thread  one.
// Bound   waits a few seconds, because a run that was killed may still be ending.
// Fails   the constructor: UsageError that names the process that holds it; OutputError.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_;
};

}  // namespace train_lm
