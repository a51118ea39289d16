// Collectives that agree pair by pair: ALL_TO_ALL, EXCHANGE, GATHER, SCATTER, SEND, RECV. Between two nodes
// all that their members have for each other is one stream: by giver, then by getter, then by tag. Both nodes
// know its length, because members have agreed on each edge. Streams move in chunks, several at once. What
// members of this node have for each other is a stream to itself.
//
// A segment of a stream is a block or a face. It begins at a multiple of 8 bytes, so that no element is cut
// by the end of a chunk.
#include "api/base/dtype.hpp"
#include "kernels/math/copy.hpp"
#include "kernels/math/strided.hpp"
#include "transport/span/operation.hpp"
#include "transport/span/vectors.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <list>
#include <utility>
#include <variant>

namespace muster::transport::span {
namespace {

constexpr std::size_t kGrain = 8;
constexpr std::size_t kChunkBytes = 1 << 20;
constexpr std::size_t kChunksInFlight = 3;  // of a stream
constexpr std::size_t kSmallBytes = 32 << 10;
static_assert(kChunkBytes % kGrain == 0);

struct StreamSegment {
  std::uint64_t begin = 0;  // in its stream, in bytes
  std::uint64_t bytes = 0;
  std::variant<BlockView<const std::byte>, BlockView<std::byte>, Face> view;
};

struct PairStream {
  std::vector<StreamSegment> segments;
  std::uint64_t bytes = 0;

  template<class View>
  void add(std::uint64_t length, View view) {
    if (length == 0) return;
    bytes = (bytes + kGrain - 1) / kGrain * kGrain;
    segments.push_back({bytes, length, view});
    bytes += length;
  }
  std::uint64_t chunks() const { return (bytes + kChunkBytes - 1) / kChunkBytes; }
  std::size_t chunk_bytes(std::uint64_t index) const {
    return static_cast<std::size_t>(std::min<std::uint64_t>(kChunkBytes, bytes - index * kChunkBytes));
  }
};

// A face of as many elements, end to end, whose element 0 is at `data`.
Face packed_like(const Face& face, std::byte* data) {
  Face packed = face;
  packed.dims = 1;
  packed.size[0] = static_cast<std::int64_t>(face.count());
  packed.stride[0] = 1;
  packed.data = data;
  return packed;
}

// Between bytes [from, to) of a stream and the memory at `staged`, to or from members.
void copy_part(const PairStream& stream, std::uint64_t from, std::uint64_t to, std::byte* staged,
               bool packs) {
  for (const StreamSegment& segment : stream.segments) {
    const std::uint64_t first = std::max(from, segment.begin);
    const std::uint64_t last = std::min(to, segment.begin + segment.bytes);
    if (first >= last) continue;
    std::byte* const at = staged + (first - from);
    const std::uint64_t a = first - segment.begin, b = last - segment.begin;
    if (const auto* face = std::get_if<Face>(&segment.view)) {
      const std::size_t element = face->element_bytes();
      const std::uint64_t one = a / element, end = b / element;
      // Its element `one` is the first that is staged; those before it are not touched.
      const auto origin = reinterpret_cast<std::uintptr_t>(at) - one * element;
      const Face packed = packed_like(*face, reinterpret_cast<std::byte*>(origin));
      math::copy_faces(packs ? packed : *face, packs ? *face : packed, one, end, element, math::kNeverStream);
    } else if (const auto* source = std::get_if<BlockView<const std::byte>>(&segment.view)) {
      const std::size_t element = source->element;
      source->for_each(a / element, b / element,
                       [&](const std::byte* data, std::uint64_t f, std::uint64_t n) {
                         math::copy(at + (f * element - a), data, n * element, math::kNeverStream);
                       });
    } else {
      const auto& target = std::get<BlockView<std::byte>>(segment.view);
      const std::size_t element = target.element;
      target.for_each(a / element, b / element, [&](std::byte* data, std::uint64_t f, std::uint64_t n) {
        math::copy(data, at + (f * element - a), n * element, math::kNeverStream);
      });
    }
  }
}

class PairOperation final : public SpanOperation {
 public:
  PairOperation(Launched launched, const Workshop& workshop);
  ~PairOperation() override;
  bool quiet() const override;

 protected:
  std::size_t work() override;
  bool resting() const override;
  Inline inline_for(std::uint32_t node) const override;
  std::uint64_t messages() const override { return most_chunks_; }

 private:
  enum class Stage : std::uint8_t { kPacking, kPacked, kMoving, kDelivering, kDone };
  struct Flight {
    std::uint32_t node = 0;
    std::uint64_t chunk = 0;
    bool arrives = false;
    Staged staged;
    std::size_t bytes = 0;
    Stage stage = Stage::kPacking;
    Flow flow;
    Chore chore;
  };
  struct Between {  // this node and another, or itself
    PairStream out, in;
    std::uint64_t next_out = 0, next_in = 0;  // chunks that have not begun
    std::uint32_t out_in_flight = 0, in_in_flight = 0;
  };

  bool goes_inline(const PairStream& stream) const { return stream.bytes <= kInlineBytes; }
  void add_edges(std::uint32_t giver, std::uint32_t getter);
  void add_faces(std::uint32_t giver, std::uint32_t getter);
  bool in_place() const;
  void begin(std::uint32_t node);
  Flight& begin_flight(std::uint32_t node, bool arrives);
  std::size_t go_on(Flight& flight);
  void copy(Flight& flight, const PairStream& stream, bool packs);
  void send(Flight& flight);
  void receive(Flight& flight);

  std::vector<Between> between_;  // by node of the span
  std::uint64_t most_chunks_ = 0;
  // Sources lie where targets do: all is packed before anything is delivered.
  bool packs_first_ = false;
  std::uint64_t unpacked_ = 0;  // chunks that are not packed yet
  std::list<Flight> flights_;
};

PairOperation::PairOperation(Launched launched, const Workshop& workshop)
    : SpanOperation(std::move(launched), workshop), between_(nodes()), packs_first_(in_place()) {
  const auto all = static_cast<std::uint32_t>(span().node_of.size());
  for (std::uint32_t giver = 0; giver < all; ++giver)
    for (std::uint32_t getter = 0; getter < all; ++getter)
      has_faces(collective().op) ? add_faces(giver, getter) : add_edges(giver, getter);
  for (const Between& each : between_) {
    most_chunks_ = std::max({most_chunks_, each.out.chunks(), each.in.chunks()});
    unpacked_ += each.out.chunks();
  }
}

PairOperation::~PairOperation() {
  for (Flight& flight : flights_) workshop_.staging.give_back(std::move(flight.staged));
}

// ---- streams -----------------------------------------------------------------------------------

// What `giver` has for `getter`, if one of them is here.
void PairOperation::add_edges(std::uint32_t giver, std::uint32_t getter) {
  const Collective& c = collective();
  const auto root = static_cast<std::uint32_t>(c.root);
  if (is_transfer(c.op) && (giver != root || getter != static_cast<std::uint32_t>(c.receiver))) return;
  if (c.op == MUSTER_GATHER && getter != root) return;
  if (c.op == MUSTER_SCATTER && giver != root) return;
  const std::size_t element = dtype_bytes(c.dtype);
  const auto length = [&](std::span<const Block> entries) { return count_of(entries) * element; };
  if (const LocalMember* from = member(giver)) {
    const auto view = source_block(c, *from, getter, element);
    between_[span().node_of[getter]].out.add(length(view.entries), view);
  }
  if (const LocalMember* to = member(getter)) {
    const auto view = target_block(c, *to, giver, element);
    between_[span().node_of[giver]].in.add(length(view.entries), view);
  }
}

void PairOperation::add_faces(std::uint32_t giver, std::uint32_t getter) {
  const auto add = [](const std::vector<Face>& all, std::uint32_t peer, PairStream& stream) {
    std::vector<const Face*> faces;
    for (const Face& face : all)
      if (face.peer == static_cast<std::int32_t>(peer)) faces.push_back(&face);
    std::sort(faces.begin(), faces.end(), [](const Face* a, const Face* b) { return a->tag < b->tag; });
    for (const Face* face : faces) stream.add(face->bytes(), *face);
  };
  if (const LocalMember* from = member(giver))
    add(from->share->sends, getter, between_[span().node_of[getter]].out);
  if (const LocalMember* to = member(getter))
    add(to->share->receives, giver, between_[span().node_of[giver]].in);
}

bool PairOperation::in_place() const {
  if (collective().op != MUSTER_ALL_TO_ALL) return false;
  const std::size_t element = dtype_bytes(collective().dtype);
  return std::any_of(members().begin(), members().end(), [&](const LocalMember& each) {
    const std::byte* const source = each.bases.source;
    const std::byte* const target = each.bases.target;
    const std::uint64_t given = extent_of(each.share->source_blocks) * element;
    const std::uint64_t got = extent_of(each.share->target_blocks) * element;
    return given > 0 && got > 0 && std::less<>()(source, target + got) &&
           std::less<>()(target, source + given);
  });
}

// ---- progress ----------------------------------------------------------------------------------

bool PairOperation::quiet() const {
  return std::all_of(flights_.begin(), flights_.end(),
                     [](const Flight& flight) { return flight.flow.pending == 0; });
}

bool PairOperation::resting() const {
  return std::all_of(flights_.begin(), flights_.end(),
                     [](const Flight& flight) { return flight.chore.over(); });
}

SpanOperation::Inline PairOperation::inline_for(std::uint32_t node) const {
  const Between& each = between_[node];
  if (each.out.bytes == 0 || !goes_inline(each.out)) return {};
  const auto found = std::find_if(flights_.begin(), flights_.end(), [node](const Flight& flight) {
    return flight.node == node && !flight.arrives;
  });
  if (found == flights_.end() || found->stage == Stage::kPacking) return {false, {}};
  return {true, {found->staged.data(), found->bytes}};
}

std::size_t PairOperation::work() {
  std::size_t moved = 0;
  for (std::uint32_t node = 0; node < nodes(); ++node) begin(node);
  for (Flight& flight : flights_)
    while (const std::size_t now = go_on(flight)) moved += now;
  for (auto flight = flights_.begin(); flight != flights_.end();) {
    if (flight->stage != Stage::kDone) {
      ++flight;
      continue;
    }
    workshop_.staging.give_back(std::move(flight->staged));
    flight = flights_.erase(flight);
    ++moved;
  }
  const bool begun = std::all_of(between_.begin(), between_.end(), [this](const Between& each) {
    const bool self = &each == &between_[span().here];
    return each.next_out == each.out.chunks() && (self || each.next_in == each.in.chunks());
  });
  if (agreed() && begun && flights_.empty()) finish();
  return moved;
}

void PairOperation::begin(std::uint32_t node) {
  Between& each = between_[node];
  while (each.next_out < each.out.chunks() && (packs_first_ || each.out_in_flight < kChunksInFlight)) {
    Flight& flight = begin_flight(node, false);
    copy(flight, each.out, true);
  }
  if (node == span().here || !agreed()) return;
  while (each.next_in < each.in.chunks() && each.in_in_flight < kChunksInFlight)
    receive(begin_flight(node, true));
}

PairOperation::Flight& PairOperation::begin_flight(std::uint32_t node, bool arrives) {
  Between& each = between_[node];
  Flight& flight = flights_.emplace_back();
  flight.node = node;
  flight.arrives = arrives;
  flight.chunk = arrives ? each.next_in++ : each.next_out++;
  ++(arrives ? each.in_in_flight : each.out_in_flight);
  flight.bytes = (arrives ? each.in : each.out).chunk_bytes(flight.chunk);
  flight.staged = workshop_.staging.take(flight.bytes);
  return flight;
}

// Returns 0 if the chunk waits for something.
std::size_t PairOperation::go_on(Flight& flight) {
  Between& each = between_[flight.node];
  switch (flight.stage) {
    case Stage::kPacking:
      if (!flight.chore.over()) return 0;
      --unpacked_;
      flight.stage = Stage::kPacked;
      return 1;
    case Stage::kPacked:
      if (!agreed() || (packs_first_ && unpacked_ > 0)) return 0;
      if (flight.node == span().here) {
        copy(flight, each.in, false);
        flight.stage = Stage::kDelivering;
      } else {
        if (!goes_inline(each.out))
          to(flight.node)
              .send(sent_tag(flight.node) + flight.chunk, {flight.staged.data(), flight.bytes}, flight.flow);
        flight.stage = Stage::kMoving;
      }
      return 1;
    case Stage::kMoving:
      if (flight.flow.pending > 0) return 0;
      if (!flight.flow.failure.ok()) {
        fail(flight.flow.failure);
        return 0;
      }
      if (flight.arrives) {
        if (packs_first_ && unpacked_ > 0) return 0;
        copy(flight, each.in, false);
        flight.stage = Stage::kDelivering;
      } else {
        --each.out_in_flight;
        flight.stage = Stage::kDone;
      }
      return 1;
    case Stage::kDelivering:
      if (!flight.chore.over()) return 0;
      --(flight.arrives ? each.in_in_flight : each.out_in_flight);
      flight.stage = Stage::kDone;
      return 1;
    case Stage::kDone:
      return 0;
  }
  return 0;
}

void PairOperation::copy(Flight& flight, const PairStream& data, bool packs) {
  flight.chore.start(stream(), 1, flight.bytes <= kSmallBytes, [&flight, &data, packs](std::uint32_t) {
    const std::uint64_t from = flight.chunk * kChunkBytes;
    copy_part(data, from, from + flight.bytes, flight.staged.data(), packs);
  });
}

void PairOperation::receive(Flight& flight) {
  flight.stage = Stage::kMoving;
  if (!goes_inline(between_[flight.node].in)) {
    to(flight.node)
        .receive(received_tag(flight.node) + flight.chunk, {flight.staged.data(), flight.bytes}, flight.flow);
    return;
  }
  const auto& came = payload(flight.node);
  if (came.size() == flight.bytes)
    std::memcpy(flight.staged.data(), came.data(), came.size());
  else
    flight.flow.failure = failure(Code::kProtocol, "node {} sent {} bytes with its request where {} were due",
                                  to(flight.node).name(), came.size(), flight.bytes);
}

}  // namespace

std::unique_ptr<SpanOperation> begin_pair_operation(Launched launched, const Workshop& workshop) {
  return std::make_unique<PairOperation>(std::move(launched), workshop);
}

}  // namespace muster::transport::span
