// BoxWriter: a copy of the data that this rank writes, and the child process that writes it.
//
// The copy lies in a memory file. The child uses no other mapping of its parent, and calls only functions
// that a child of a process with several threads may call: write, fsync, close, _exit. It holds no descriptor
// but that of its file, so neither the daemon nor the launcher waits for it. It blocks all signals, and ends
// soon after its parent has.
#pragma once

#include "api/base/hash.hpp"
#include "api/base/result.hpp"
#include "api/base/store/disk_file.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace muster::client {

// Owns    the copy and the child, until finished() or the end.
// Thread  the session's.
// Bound   the bytes of the file, in memory, and 16 bytes for each chunk.
// Fails   kNoResource: memory, a child, or the disk, naming the file.
class BoxWriter {
 public:
  // Shared with the child.
  struct Progress;

  BoxWriter() = default;
  BoxWriter(BoxWriter&& other) noexcept;
  BoxWriter& operator=(BoxWriter&& other) noexcept;
  ~BoxWriter();  // ends a child that still writes

  // Makes room for a copy of `bytes` in `chunks`: (first byte, bytes) each, end to end. `spare` is a writer
  // that has ended. Its memory is used again if it is large enough: pages that exist already cost half the
  // time.
  struct Chunk {
    std::uint64_t at = 0;
    std::uint64_t bytes = 0;
  };
  static Result<BoxWriter> make(std::uint64_t bytes, std::vector<Chunk> chunks, BoxWriter spare);
  std::byte* copy() { return memory_; }
  // Starts the child, which writes the copy into a new file at `path`.
  Status start(const std::string& path);

  // Whether the child has ended; waits for that at most `patience`. OK: the child has written everything.
  Result<bool> finished(std::chrono::milliseconds patience);
  // The checksum of each chunk, once the child has ended.
  std::span<const Hash128> sums() const;

 private:
  static std::uint64_t needed(std::uint64_t bytes, std::size_t chunks);
  Status map(std::uint64_t bytes);
  Status outcome() const;
  void release() noexcept;

  std::byte* memory_ = nullptr;  // the copy, then Progress, then the checksums
  std::uint64_t bytes_ = 0;      // of the copy
  std::uint64_t mapped_ = 0;
  std::vector<Chunk> chunks_;
  std::string path_;
  int process_ = -1;  // a descriptor of the child
};

}  // namespace muster::client
