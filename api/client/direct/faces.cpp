#include "api/client/direct/faces.hpp"

#include "api/base/fault_point.hpp"
#include "api/client/direct/algorithms.hpp"
#include "api/shm/control.hpp"
#include "kernels/math/copy.hpp"
#include "kernels/math/strided.hpp"

#include <array>
#include <cstring>

namespace muster::client {
namespace {

using Kind = shm::PayloadLocation::Kind;
__extension__ using Wide = unsigned __int128;

// Up to this total, faces are packed for the receivers; above it they are read in place.
constexpr std::uint64_t kPackedBytesMax = 8 << 10;
constexpr std::uint64_t kPackedBytesMaxCrowded = 64 << 10;
static_assert(shm::kFacesMax * entry_bytes(MUSTER_TENSOR_DIMS_MAX) + kPackedBytesMaxCrowded <=
              shm::kStageBytes);

Face packed_view(std::byte* data, std::uint64_t count) {
  Face face;
  face.dims = 1;
  face.size[0] = static_cast<std::int64_t>(count);
  face.stride[0] = 1;
  face.data = data;
  return face;
}

// Bytes from the first element to the end of the last one; UINT64_MAX if the view is invalid.
std::uint64_t extent_bytes(const Face& view, std::uint64_t elements, std::size_t element) {
  Wide last = 0;
  Wide count = 1;
  for (std::size_t d = 0; d < static_cast<std::size_t>(view.dims); ++d) {
    if (view.size[d] <= 0 || view.stride[d] < 0) return UINT64_MAX;
    last += static_cast<Wide>(view.size[d] - 1) * static_cast<Wide>(view.stride[d]);
    count *= static_cast<Wide>(view.size[d]);
    if (last > (Wide{1} << 60) || count > (Wide{1} << 60)) return UINT64_MAX;
  }
  return count == elements ? static_cast<std::uint64_t>((last + 1) * element) : UINT64_MAX;
}

}  // namespace

// ---- giving ------------------------------------------------------------------------------------

Outcome Faces::prepare() {
  const std::uint64_t bytes = plan_.given_bytes;
  packed_ = bytes <= (plan_.crowded ? kPackedBytesMaxCrowded : kPackedBytesMax);
  list_bytes_ = 0;
  for (const Face& face : plan_.mine.sends) list_bytes_ += entry_bytes(packed_ ? 0 : face.dims);
  staged_ = list_bytes_ + (packed_ ? bytes : 0) > shm::kSlotPayloadBytes;
  return staged_ && payloads_.take_stage().data == nullptr ? Outcome::kInterrupted : Outcome::kDone;
}

void Faces::fill(std::byte* to, shm::PayloadLocation location) {
  std::uint64_t end = list_bytes_;
  std::byte* at = to;
  for (std::size_t k = 0; k < plan_.mine.sends.size(); ++k) {
    const Face& face = plan_.mine.sends[k];
    Entry entry;
    entry.peer = face.peer;
    entry.tag = face.tag;
    entry.count = face.count();
    if (packed_) {
      entry.location = pack_location(location);
      entry.offset = end;
      math::copy_faces(packed_view(to + end, entry.count), face, 0, entry.count, face.element_bytes(),
                       math::kNeverStream);
      end += face.bytes();
    } else {
      entry.location = pack_location(plan_.sends[k]);
      entry.dims = face.dims;
      const std::size_t numbers = static_cast<std::size_t>(face.dims) * sizeof(std::int64_t);
      std::memcpy(at + sizeof entry, face.size.data(), numbers);
      std::memcpy(at + sizeof entry + numbers, face.stride.data(), numbers);
    }
    std::memcpy(at, &entry, sizeof entry);
    at += entry_bytes(entry.dims);
  }
}

shm::PayloadLocation Faces::announce(Announced* announced) {
  const shm::PayloadLocation list =
      staged_ ? payloads_.stage().location : shm::PayloadLocation{Kind::kSlot, 0, 0};
  fill(staged_ ? payloads_.stage().data : channel_.arrivals().payload(), list);
  Announced::Faces said;
  said.balance = plan_.signature.balance;
  said.sends = static_cast<std::uint32_t>(plan_.mine.sends.size());
  said.in_place = must_await_readers() ? 1 : 0;
  announced->say(said);
  MUSTER_FAULT_POINT("faces.packed");
  return said.sends > 0 ? list : shm::PayloadLocation{};
}

Outcome Faces::run(WaitPolicy& policy) {
  if (const Outcome prepared = prepare(); prepared != Outcome::kDone) return prepared;
  MUSTER_FAULT_POINT("payload.prepared");
  const Outcome met = payloads_.meet_with([this](Announced* announced) { return announce(announced); });
  if (met != Outcome::kDone) return met;
  if (const Outcome received = receive(); received != Outcome::kDone) return received;
  bool in_place = false;
  for (std::uint32_t i = 0; i < channel_.members(); ++i) in_place = in_place || said_by(i).in_place != 0;
  if (!in_place) return payloads_.end();
  channel_.phases().set(channel_.at(), shm::kPhaseLast);
  if (!must_await_readers()) return Outcome::kDone;
  return outcome_of(channel_.phases().await_readers(channel_.at(), shm::kPhaseLast, policy));
}

// ---- receiving ---------------------------------------------------------------------------------

Outcome Faces::receive() {
  for (const Face& face : plan_.mine.receives) {
    if (face.count() == 0) continue;
    if (const Outcome taken = take(face); taken != Outcome::kDone) return taken;
  }
  return Outcome::kDone;
}

const std::byte* Faces::list_of(std::uint32_t i, std::uint64_t* bytes) const {
  const shm::PayloadLocation location = channel_.arrivals().of(i).location();
  const bool staged = location.kind == Kind::kStage && location.index < shm::kStages;
  if (!staged && location.kind != Kind::kSlot) return nullptr;
  *bytes = staged ? shm::kStageBytes : shm::kSlotPayloadBytes;
  return staged ? channel_.peer(i).stages + location.index * shm::kStageBytes
                : channel_.arrivals().payload_of(i);
}

Outcome Faces::take(const Face& to) {
  const auto from = static_cast<std::uint32_t>(to.peer);
  std::uint64_t room = 0;
  const std::byte* list = list_of(from, &room);
  const std::uint32_t sends = said_by(from).sends;
  if (list == nullptr || sends > room / sizeof(Entry)) return Outcome::kCorrupt;
  std::uint64_t at = 0;
  for (std::uint32_t k = 0; k < sends; ++k) {
    Entry entry;
    if (room - at < sizeof entry) break;
    std::memcpy(&entry, list + at, sizeof entry);
    const bool possible = entry.dims >= 0 && entry.dims <= MUSTER_TENSOR_DIMS_MAX;
    if (!possible || room - at < entry_bytes(entry.dims)) break;
    const std::byte* view = list + at + sizeof entry;
    at += entry_bytes(entry.dims);
    if (entry.peer != static_cast<std::int32_t>(channel_.index()) || entry.tag != to.tag) continue;
    const Outcome copied = copy(to, from, entry, view);
    if (copied != Outcome::kDone) return intact(from) ? copied : Outcome::kBroken;
    MUSTER_FAULT_POINT("faces.taken");
    // An intact list does not prove that a face read in place is intact. A member that has moved on no longer
    // waits for its readers.
    const bool in_arena = shm::unpack_location(entry.location).kind == Kind::kArena;
    const bool lost = in_arena && !channel_.awaits_readers(from);
    return lost || !intact(from) ? Outcome::kBroken : Outcome::kDone;
  }
  return intact(from) ? Outcome::kCorrupt : Outcome::kBroken;
}

bool Faces::intact(std::uint32_t from) const {
  return payloads_.intact(from) && channel_.sound();
}

Outcome Faces::copy(const Face& to, std::uint32_t from, const Entry& entry, const std::byte* view) {
  const std::size_t element = to.element_bytes();
  if (entry.count != to.count()) return Outcome::kCorrupt;
  if (shm::unpack_location(entry.location).kind == Kind::kArena) return copy_in_place(to, from, entry, view);
  std::uint64_t room = 0;
  const std::byte* base = list_of(from, &room);
  const std::uint64_t bytes = entry.count * element;
  if (entry.offset > room || bytes > room - entry.offset) return Outcome::kCorrupt;
  math::copy_faces(to, packed_view(const_cast<std::byte*>(base) + entry.offset, entry.count), 0, entry.count,
                   element, math::kNeverStream);
  return Outcome::kDone;
}

Outcome Faces::copy_in_place(const Face& to, std::uint32_t from, const Entry& entry, const std::byte* view) {
  const std::size_t element = to.element_bytes();
  Face source;
  source.dims = entry.dims;
  const std::size_t numbers = static_cast<std::size_t>(entry.dims) * sizeof(std::int64_t);
  std::memcpy(source.size.data(), view, numbers);
  std::memcpy(source.stride.data(), view + numbers, numbers);
  const shm::PayloadLocation location = shm::unpack_location(entry.location);
  const std::uint64_t extent = extent_bytes(source, entry.count, element);
  const std::byte* data = memory_.arena(channel_.peer(from).rank, location.index, location.value, extent);
  if (data == nullptr) return Outcome::kCorrupt;
  source.data = const_cast<std::byte*>(data);
  math::copy_faces(to, source, 0, entry.count, element,
                   math::streaming_from(plan_.target_bytes * channel_.members()));
  return Outcome::kDone;
}

Outcome run_faces(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy) {
  Payloads payloads(plan, memory, stages, policy);
  return Faces(plan, payloads, memory).run(policy);
}

}  // namespace muster::client
