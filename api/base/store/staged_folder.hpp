// StagedFolder: a checkpoint while it is written. It is no checkpoint before commit(), whichever process
// dies.
//
//   FOLDER/NAME.partial-NONCE/rank-0.bin …   each member writes its file, and waits until it is on the disk
//   …/metadata.json                          written last, under another name first, then renamed
//   FOLDER/NAME                              the folder renamed; FOLDER synced
//
// Every failure comes before that rename, except one of the last sync. If that sync fails, a replaced folder
// takes its name back.
#pragma once

#include "api/base/checkpoint/saved.hpp"
#include "api/base/result.hpp"
#include "api/base/store/disk_file.hpp"

#include <cstdint>
#include <string>

namespace muster::store {

// Owns    the folder until commit(); then nobody does. A lock on it, which says that its maker lives.
// Thread  one at a time.
// Bound   -
// Fails   kDuplicate (the name is taken), kBadArgument (a name), kDenied, kNoResource, kUnsupported (a file
//         system that cannot exchange two folders, where one is to be replaced).
class StagedFolder {
 public:
  enum class Existing : std::uint8_t {
    kRefuse,   // a checkpoint of this name is an error
    kReplace,  // the new one takes its place, at once and as a whole
  };

  StagedFolder() = default;
  StagedFolder(StagedFolder&& other) noexcept;
  StagedFolder& operator=(StagedFolder&& other) noexcept;
  ~StagedFolder();  // removes what was not committed

  // `nonce`: a fresh_nonce(). Makes `folder` too, if it is not there.
  static Result<StagedFolder> make(const std::string& folder, const std::string& name, std::uint64_t nonce,
                                   Existing existing);
  // Where it is, for the members that did not make it.
  static std::string path_of(const std::string& folder, const std::string& name, std::uint64_t nonce);

  const std::string& path() const { return path_; }
  // Every file of the record is complete and on the disk. Pauses before the rename. After a failure there is
  // no new checkpoint, and the one to be replaced is as it was. One exception: if the last sync fails, and
  // nothing was replaced, there is one, and the text says so. If the replaced one cannot safely come back,
  // both folders stay, and the text names them.
  Status commit(const checkpoint::CheckpointRecord& record, const Pause& pause = Pause());
  // Removes an uncommitted folder, or the one that the commit has replaced.
  Status clear(const Pause& pause = Pause());

 private:
  StagedFolder(std::string folder, std::string name, std::string path, DiskFile lock, Existing existing);
  Status take_the_name();
  // The last sync has failed, with `why`. Returns the error of commit().
  Status give_the_name_back(const DiskFile& folder, const Status& why);

  std::string folder_, name_;
  std::string path_;  // empty: nothing to remove
  DiskFile lock_;
  Existing existing_ = Existing::kRefuse;
};

}  // namespace muster::store
