#include "daemon/control/packet.hpp"

#include "api/shm/message.hpp"
#include "api/shm/segment.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::control {
namespace {

using shm::MessageHeader;
using shm::MessageKind;

constexpr std::size_t kInlineBytesMax = shm::kMessageBytesMax - sizeof(MessageHeader);

// Whether the bytes are CBOR items of known length, `items_max` at most, nested no deeper than kBodyDepthMax.
// It runs before the parser, which recurses and allocates more than it reads. We never send items of unknown
// length, so they are refused (RFC 8949, section 3).
bool shallow(std::span<const std::byte> bytes, std::size_t items_max) {
  std::array<std::uint64_t, kBodyDepthMax + 1> left{1};  // items still to come, per level
  std::size_t level = 0;
  std::size_t at = 0;
  while (true) {
    while (left[level] == 0) {
      if (level == 0) return at == bytes.size();
      --level;
    }
    if (at >= bytes.size() || items_max-- == 0) return false;
    --left[level];
    const auto initial = std::to_integer<unsigned>(bytes[at++]);
    const unsigned major = initial >> 5;
    std::uint64_t argument = initial & 31;
    if (argument >= 24) {
      if (argument > 27) return false;
      const std::size_t width = std::size_t{1} << (argument - 24);
      if (bytes.size() - at < width) return false;
      argument = 0;
      for (std::size_t i = 0; i < width; ++i)
        argument = argument << 8 | std::to_integer<unsigned>(bytes[at++]);
    }
    if (major == 2 || major == 3) {
      if (bytes.size() - at < argument) return false;
      at += static_cast<std::size_t>(argument);
    } else if (major == 4 || major == 5) {
      if (level == kBodyDepthMax || argument > bytes.size()) return false;
      left[++level] = major == 5 ? 2 * argument : argument;
    } else if (major == 6) {
      return false;  // a tag
    }
  }
}

// Bytes of a memory file that text_bytes() or read_all() has checked.
Status read_at(const shm::Descriptor& descriptor, std::size_t offset, std::span<std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        pread(descriptor.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (n <= 0)
      return failure(Code::kProtocol, "a control message's memory cannot be read: {}", std::strerror(errno));
    done += static_cast<std::size_t>(n);
  }
  return {};
}

Result<std::vector<std::byte>> read_all(const shm::Descriptor& descriptor, std::size_t bytes_max) {
  MUSTER_ASSIGN_OR_RETURN(const std::size_t size, text_bytes(descriptor, bytes_max));
  std::vector<std::byte> bytes(size);
  MUSTER_RETURN_IF_ERROR(read_at(descriptor, 0, bytes));
  return bytes;
}

// The memory's size is the body's size, so the reader needs no length.
Result<shm::Descriptor> write_all(std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(shm::Descriptor memory,
                          shm::create_memory("muster-body", bytes.size(), shm::memory_headroom()));
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        pwrite(memory.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (n <= 0) return fail(Code::kNoResource, "writing a memory file: {}", std::strerror(errno));
    done += static_cast<std::size_t>(n);
  }
  return memory;
}

}  // namespace

Result<Json> parse_body(std::span<const std::byte> bytes, const Packet::Limits& limits) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  Json body = shallow(bytes, limits.items_max) ? Json::from_cbor(first, first + bytes.size(), true, false)
                                               : Json(Json::value_t::discarded);
  if (body.is_discarded())
    return fail(Code::kProtocol, "a control message is not valid CBOR, or of more than {} items",
                limits.items_max);
  if (!body.is_object()) return fail(Code::kProtocol, "a control message is not a map");
  return body;
}

Status send_packet(const shm::Descriptor& socket, MessageKind kind, std::uint32_t serial, const Json& body,
                   std::span<const int> descriptors) {
  const std::vector<std::uint8_t> cbor = Json::to_cbor(body);
  if (cbor.size() > kBodyBytesMax)
    return failure(Code::kBadArgument, "a control message of {} bytes is too large", cbor.size());
  MessageHeader header;
  header.kind = kind;
  header.serial = serial;
  std::vector<int> all;
  shm::Descriptor memory;
  const bool small = cbor.size() <= kInlineBytesMax;
  if (!small) {
    MUSTER_ASSIGN_OR_RETURN(memory, write_all(std::as_bytes(std::span(cbor))));
    all.push_back(memory.get());
  }
  all.insert(all.end(), descriptors.begin(), descriptors.end());
  header.bytes = static_cast<std::uint32_t>(sizeof header + (small ? cbor.size() : 0));
  std::vector<std::byte> bytes(header.bytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  if (small) std::memcpy(bytes.data() + sizeof header, cbor.data(), cbor.size());
  return shm::send_message(socket, bytes, all);
}

Result<Packet> parse_packet(std::span<const std::byte> bytes, std::vector<shm::Descriptor> descriptors,
                            const Packet::Limits& limits) {
  MessageHeader header;
  if (bytes.size() < sizeof header)
    return fail(Code::kProtocol, "a control message of {} bytes is too short", bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != shm::kMagicMessage || header.bytes != bytes.size())
    return fail(Code::kProtocol, "a control message's header is not ours");
  if (header.version != shm::kAbiVersion)
    return fail(Code::kVersion,
                "the other side speaks version {}, this one {}; install the same release of both",
                header.version, shm::kAbiVersion);
  if (header.kind == MessageKind::kFailure) {  // refused before it was answered
    MUSTER_ASSIGN_OR_RETURN(const auto refusal, shm::checked<shm::Failure>(bytes, MessageKind::kFailure));
    return fail(shm::status_of(refusal));
  }
  if (header.kind != MessageKind::kCommand && header.kind != MessageKind::kReply)
    return fail(Code::kProtocol, "a control message of kind {} is not expected here",
                static_cast<unsigned>(header.kind));
  Packet packet{header.kind, header.serial, {}, std::move(descriptors)};
  if (bytes.size() > sizeof header) {
    MUSTER_ASSIGN_OR_RETURN(packet.body, parse_body(bytes.subspan(sizeof header), limits));
    return packet;
  }
  if (packet.descriptors.empty()) return fail(Code::kProtocol, "a control message has no body");
  MUSTER_ASSIGN_OR_RETURN(const auto body, read_all(packet.descriptors.front(), limits.bytes_max));
  packet.descriptors.erase(packet.descriptors.begin());
  MUSTER_ASSIGN_OR_RETURN(packet.body, parse_body(body, limits));
  return packet;
}

namespace {

// Saves what it can of a datagram whose descriptors could not be opened here. `buffer` holds the datagram's
// bytes, and zeros behind them.
Result<Packet> without_descriptors(std::span<const std::byte> buffer, const Status& status) {
  MessageHeader header;
  std::memcpy(&header, buffer.data(), sizeof header);
  if (header.magic != shm::kMagicMessage || header.bytes > buffer.size()) return fail(status);
  if (header.kind == MessageKind::kReply) return Packet{header.kind, header.serial, failed(status), {}};
  auto packet = parse_packet(buffer.first(header.bytes), {});
  if (!packet) return fail(status);
  return packet;
}

Result<Packet> finish(Result<shm::Message> message, std::span<const std::byte> buffer,
                      const Packet::Limits& limits) {
  if (!message && message.error().code() == Code::kNoResource)
    return without_descriptors(buffer, message.error());
  if (!message) return fail(message.error());
  if (message->bytes == 0) return fail(Code::kDaemonLost, "the other side has closed the connection");
  std::vector<shm::Descriptor> descriptors;
  for (auto& descriptor : message->descriptors) descriptors.push_back(std::move(descriptor));
  return parse_packet(buffer.first(message->bytes), std::move(descriptors), limits);
}

}  // namespace

Result<Packet> receive_packet(const shm::Descriptor& socket, const Packet::Limits& limits) {
  const shm::MessageBuffer buffer;
  auto message = shm::receive_message(socket, buffer.all());
  return finish(std::move(message), buffer.all(), limits);
}

Result<Packet> receive_packet(const shm::Descriptor& socket, Instant deadline, const Clock& clock) {
  const shm::MessageBuffer buffer;
  auto message = shm::receive_message(socket, buffer.all(), deadline, clock);
  return finish(std::move(message), buffer.all(), {});
}

Json success(Json result) {
  return Json{{"ok", true}, {"result", std::move(result)}};
}

Json failed(const Status& status) {
  return Json{
      {"ok", false}, {"status", static_cast<muster_status_t>(status.code())}, {"error", status.message()}};
}

Status status_of(const Json& answer) {
  const auto ok = answer.find("ok");
  if (ok == answer.end() || !ok->is_boolean())
    return failure(Code::kProtocol, "an answer says neither yes nor no");
  if (ok->get<bool>()) return {};
  const auto status = answer.find("status");
  const auto error = answer.find("error");
  // A failed answer with an unknown or a success status would count as a success.
  const bool well_formed =
      status != answer.end() && status->is_number_integer() && error != answer.end() && error->is_string();
  const std::int64_t number = well_formed ? status->get<std::int64_t>() : 0;
  const auto code = static_cast<muster_status_t>(number);
  if (number >= 0 || number != code || !is_known(code))
    return failure(Code::kProtocol, "an answer's error is not well-formed");
  return Status(static_cast<Code>(code), error->get<std::string>());
}

Result<Json> result_of(const Packet& answer) {
  MUSTER_RETURN_IF_ERROR(status_of(answer.body));
  return answer.body.value("result", Json::object());
}

Result<shm::Descriptor> text_descriptor(const std::string& text) {
  return write_all(std::as_bytes(std::span(text)));
}

Result<std::size_t> text_bytes(const shm::Descriptor& descriptor, std::size_t bytes_max) {
  // First of all: in a user-space file system even fstat() may take long.
  if (fcntl(descriptor.get(), F_GET_SEALS) < 0)
    return fail(Code::kProtocol, "a control message's descriptor is no memory file");
  struct stat info {};
  if (fstat(descriptor.get(), &info) != 0 || info.st_size < 0 ||
      static_cast<std::size_t>(info.st_size) > bytes_max)
    return fail(Code::kProtocol, "a control message's memory has {} bytes; {} are allowed", info.st_size,
                bytes_max);
  MUSTER_RETURN_IF_ERROR(shm::check_memory(descriptor, static_cast<std::size_t>(info.st_size)));
  return static_cast<std::size_t>(info.st_size);
}

Result<std::vector<std::uint8_t>> read_text(const shm::Descriptor& descriptor, std::size_t offset,
                                            std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  MUSTER_RETURN_IF_ERROR(read_at(descriptor, offset, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

Result<std::string> read_descriptor(const shm::Descriptor& descriptor, std::size_t bytes_max) {
  MUSTER_ASSIGN_OR_RETURN(const auto bytes, read_all(descriptor, bytes_max));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace muster::control
