// Packet: one control message between processes of ours: a header, a CBOR body, descriptors.
//
// Command line → supervisor and supervisor ↔ engine speak it. {"command": …} is answered by {"ok": true,
// "result": …} or {"ok": false, "status": -108, "error": "…"} with the same serial. {"event": …} with serial
// 0 is not answered. A body larger than a datagram travels as a sealed memfd, the first descriptor. Bytes are
// checked on arrival: the peer may be of another version. A descriptor is read only if it is a sealed memfd:
// a read of any other file may wait for its sender.
#pragma once

#include "api/shm/socket.hpp"
#include "daemon/control/job.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace muster::control {

constexpr std::size_t kBodyBytesMax = std::size_t{256} << 20;  // of a body in a memfd
constexpr int kBodyDepthMax = 16;

struct Packet {
  // How much a receiver accepts. Less from a peer that is not trusted, such as an engine, which runs with its
  // job's rights. Items are counted too, because an item of one byte takes much more memory.
  struct Limits {
    std::size_t bytes_max = kBodyBytesMax;
    std::size_t items_max = kBodyBytesMax;
  };
  shm::MessageKind kind = shm::MessageKind::kCommand;
  std::uint32_t serial = 0;
  Json body;
  std::vector<shm::Descriptor> descriptors;
};
constexpr Packet::Limits kOfEngines{std::size_t{32} << 20, std::size_t{2} << 20};

// Does not block. Errors: those of send_message; kBadArgument for a body over kBodyBytesMax.
Status send_packet(const shm::Descriptor& socket, shm::MessageKind kind, std::uint32_t serial,
                   const Json& body, std::span<const int> descriptors = {});

// Parses a received datagram. Errors: kVersion, kProtocol.
Result<Packet> parse_packet(std::span<const std::byte> bytes, std::vector<shm::Descriptor> descriptors,
                            const Packet::Limits& limits = {});

// Receives one packet. kPending if none is there; kDaemonLost if the peer has closed. If no descriptor is
// free for a packet's descriptors, a reply becomes a refusal that says so, and a command comes without them;
// kNoResource if that is not possible either. The connection stays usable in each case.
Result<Packet> receive_packet(const shm::Descriptor& socket, const Packet::Limits& limits = {});
// The same, waiting until `deadline`.
Result<Packet> receive_packet(const shm::Descriptor& socket, Instant deadline, const Clock& clock);

// A body: a CBOR map whose items have known lengths, no deeper than kBodyDepthMax. kProtocol.
Result<Json> parse_body(std::span<const std::byte> bytes, const Packet::Limits& limits);

Json success(Json result);
Json failed(const Status& status);
// The status in the body of an answer.
Status status_of(const Json& answer);
// The result of an answer, or its error.
Result<Json> result_of(const Packet& answer);

// A descriptor with the text: sealed, read from offset 0.
Result<shm::Descriptor> text_descriptor(const std::string& text);
// Its size in bytes. kProtocol: it is no sealed memory file, or larger than `bytes_max`.
Result<std::size_t> text_bytes(const shm::Descriptor& descriptor, std::size_t bytes_max);
// `count` of its bytes from `offset` on, all within the size that text_bytes() has given.
Result<std::vector<std::uint8_t>> read_text(const shm::Descriptor& descriptor, std::size_t offset,
                                            std::size_t count);
// Reads such a descriptor to its end.
Result<std::string> read_descriptor(const shm::Descriptor& descriptor, std::size_t bytes_max);

}  // namespace muster::control
