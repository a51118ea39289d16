#include "daemon/control/link/frame.hpp"

#include <utility>

namespace muster::control {

Result<std::vector<std::byte>> frame_of(const Json& body) {
  const std::vector<std::uint8_t> cbor = Json::to_cbor(body);
  if (cbor.size() > kFrameBytesMax)
    return fail(Code::kBadArgument, "a message of {} bytes to another node is too large; {} are possible",
                cbor.size(), kFrameBytesMax);
  std::vector<std::byte> frame;
  frame.reserve(kFrameLengthBytes + cbor.size());
  for (std::size_t i = 0; i < kFrameLengthBytes; ++i)
    frame.push_back(std::byte(cbor.size() >> 8 * (kFrameLengthBytes - 1 - i) & 0xff));
  for (const std::uint8_t byte : cbor) frame.push_back(std::byte(byte));
  return frame;
}

bool fits_frame(const Json& body) {
  const auto frame = frame_of(body);
  return frame && parse_body(std::span(*frame).subspan(kFrameLengthBytes), kOfFrames);
}

void FrameReader::add(std::span<const std::byte> bytes) {
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<Json>> FrameReader::next() {
  if (!broken_.ok()) return fail(broken_);
  const std::span<const std::byte> left = std::span(bytes_).subspan(taken_);
  if (left.size() < kFrameLengthBytes) return std::nullopt;
  std::size_t length = 0;
  for (std::size_t i = 0; i < kFrameLengthBytes; ++i)
    length = length << 8 | std::to_integer<std::size_t>(left[i]);
  // Refused by its length alone: nobody waits for bytes that would not be taken.
  if (length > bytes_max_) {
    broken_ = failure(Code::kProtocol, "a frame of {} bytes; {} are allowed here", length, bytes_max_);
    return fail(broken_);
  }
  if (left.size() - kFrameLengthBytes < length) return std::nullopt;
  auto body = parse_body(left.subspan(kFrameLengthBytes, length), kOfFrames);
  if (!body) {
    broken_ = body.error();
    return fail(broken_);
  }
  taken_ += kFrameLengthBytes + length;
  return std::optional<Json>(*std::move(body));
}

}  // namespace muster::control
