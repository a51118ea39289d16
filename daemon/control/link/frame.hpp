// Frames: messages between supervisors, as bytes of a stream. A frame is a length in four bytes, big-endian,
// and a CBOR map of that length. Descriptors cannot cross nodes, so a frame has none.
#pragma once

#include "daemon/control/packet.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace muster::control {

constexpr std::size_t kFrameLengthBytes = 4;
constexpr std::size_t kFrameBytesMax = std::size_t{1} << 20;       // of a body
constexpr std::size_t kGreetingBytesMax = std::size_t{128} << 10;  // of a body, before the peer is known
constexpr Packet::Limits kOfFrames{kFrameBytesMax, std::size_t{1} << 16};

// kBadArgument: the body is larger than kFrameBytesMax.
Result<std::vector<std::byte>> frame_of(const Json& body);
// Whether an admitted peer reads a frame of this body: it is neither too large nor of too many items.
bool fits_frame(const Json& body);

// Takes frames out of a stream that comes in pieces of any size.
//
// Owns    the bytes of the frame that is not whole yet.
// Thread  one.
// Bound   one frame of the limit, and what was added last.
// Fails   next: kProtocol, from then on for ever: the stream has no next frame that could be found.
class FrameReader {
 public:
  explicit FrameReader(std::size_t bytes_max = kGreetingBytesMax) : bytes_max_(bytes_max) {}
  // For the frames to come.
  void set_limit(std::size_t bytes_max) { bytes_max_ = bytes_max; }

  // Take all frames by next() before adding more.
  void add(std::span<const std::byte> bytes);
  // The next frame; nothing if it is not whole.
  Result<std::optional<Json>> next();

 private:
  std::size_t bytes_max_;
  std::vector<std::byte> bytes_;
  std::size_t taken_ = 0;
  Status broken_;
};

}  // namespace muster::control
