// Collectives that agree pair by pair: ALL_TO_ALL, EXCHANGE, GATHER, SCATTER, SEND, RECV. All data between
// the members of two nodes is one stream: by giver, then by getter, then by tag. Both nodes know its length,
// because members have agreed on each edge. Streams move in chunks, several at once. The data between members
// of this node is a stream of its own, and is copied from member to member.
//
// A segment of a stream is a block or a face. It begins at a multiple of 8 bytes. A long segment has chunks
// of its own, which move straight from and to the memory of members where that is in one piece. Short ones
// share chunks, and pass through staging. So both nodes cut a stream at the same places.
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
constexpr std::size_t kPieceBytes = kChunkBytes / 2;
constexpr std::size_t kChunksInFlight = 4;    // of a stream
constexpr std::size_t kLongBytes = 64 << 10;  // of a segment
constexpr std::size_t kSmallBytes = 32 << 10;
static_assert(kPieceBytes % kGrain == 0);

struct StreamSegment {
  std::uint64_t begin = 0;  // in its stream, in bytes
  std::uint64_t bytes = 0;
  std::variant<BlockView<const std::byte>, BlockView<std::byte>, Face> view;
};

struct StreamChunk {
  std::uint64_t begin = 0, end = 0;  // in its stream, in bytes
  std::size_t first = 0, last = 0;   // its segments
};

struct PairStream {
  std::vector<StreamSegment> segments;
  std::vector<StreamChunk> chunks;
  std::uint64_t bytes = 0;

  template<class View>
  void add(std::uint64_t length, View view) {
    if (length == 0) return;
    bytes = (bytes + kGrain - 1) / kGrain * kGrain;
    segments.push_back({bytes, length, view});
    bytes += length;
  }
  // Cuts the stream into chunks, once all segments are there.
  void cut() {
    bool is_open = false;  // the last chunk takes more short segments
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const std::uint64_t begin = segments[i].begin, end = begin + segments[i].bytes;
      if (segments[i].bytes >= kLongBytes) {
        for (std::uint64_t from = begin; from < end; from += kPieceBytes)
          chunks.push_back({from, std::min(end, from + kPieceBytes), i, i + 1});
        is_open = false;
      } else if (is_open && end - chunks.back().begin <= kPieceBytes) {
        chunks.back().end = end;
        chunks.back().last = i + 1;
      } else {
        chunks.push_back({begin, end, i, i + 1});
        is_open = true;
      }
    }
  }
};

// The place of a chunk, if that is one piece of a member's memory; else nullptr.
std::byte* in_one_piece(const PairStream& stream, const StreamChunk& chunk) {
  if (chunk.last - chunk.first != 1) return nullptr;
  const StreamSegment& segment = stream.segments[chunk.first];
  std::byte* found = nullptr;
  std::size_t pieces = 0;
  const auto look = [&](const auto& view) {
    view.for_each((chunk.begin - segment.begin) / view.element, (chunk.end - segment.begin) / view.element,
                  [&](auto* data, std::uint64_t, std::uint64_t) {
                    found = const_cast<std::byte*>(data);  // of a source: it is read only
                    ++pieces;
                  });
  };
  if (const auto* source = std::get_if<BlockView<const std::byte>>(&segment.view)) look(*source);
  if (const auto* target = std::get_if<BlockView<std::byte>>(&segment.view)) look(*target);
  return pieces == 1 ? found : nullptr;
}

// A face of as many elements, end to end, whose element 0 is at `data`.
Face packed_like(const Face& face, std::byte* data) {
  Face packed = face;
  packed.dims = 1;
  packed.size[0] = static_cast<std::int64_t>(face.count());
  packed.stride[0] = 1;
  packed.data = data;
  return packed;
}

// Copies between a chunk of a stream and the memory at `staged`, to or from members.
void copy_chunk(const PairStream& stream, const StreamChunk& chunk, std::byte* staged, bool packs) {
  for (std::size_t i = chunk.first; i < chunk.last; ++i) {
    const StreamSegment& segment = stream.segments[i];
    const std::uint64_t first = std::max(chunk.begin, segment.begin);
    const std::uint64_t last = std::min(chunk.end, segment.begin + segment.bytes);
    std::byte* const at = staged + (first - chunk.begin);
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

// Copies from member to member, between the same chunk of two streams of the same lengths.
void copy_across(const PairStream& out, const PairStream& in, const StreamChunk& chunk) {
  for (std::size_t i = chunk.first; i < chunk.last; ++i) {
    const StreamSegment& segment = out.segments[i];
    const std::uint64_t a = std::max(chunk.begin, segment.begin) - segment.begin;
    const std::uint64_t b = std::min(chunk.end, segment.begin + segment.bytes) - segment.begin;
    if (const auto* face = std::get_if<Face>(&segment.view)) {
      const std::size_t element = face->element_bytes();
      math::copy_faces(std::get<Face>(in.segments[i].view), *face, a / element, b / element, element,
                       math::kNeverStream);
      continue;
    }
    const auto& source = std::get<BlockView<const std::byte>>(segment.view);
    const auto& target = std::get<BlockView<std::byte>>(in.segments[i].view);
    const std::size_t element = source.element;
    source.for_each(a / element, b / element, [&](const std::byte* from, std::uint64_t f, std::uint64_t n) {
      target.for_each(f, f + n, [&](std::byte* into, std::uint64_t g, std::uint64_t m) {
        if (const std::byte* const data = from + (g - f) * element; data != into)
          math::copy(into, data, m * element, math::kNeverStream);
      });
    });
  }
}

class PairOperation final : public SpanOperation {
 public:
  PairOperation(Launched launched, const OperationContext& context);
  ~PairOperation() override;

 protected:
  std::size_t work() override;
  void drain_rest(Rest& rest) override;
  bool flows_are_over() const override;
  bool resting() const override;
  bool wants_direct() const override { return wants_direct_; }
  Inline inline_for(std::uint32_t node) const override;
  std::uint64_t messages() const override { return most_chunks_; }

 private:
  enum class State : std::uint8_t { kPacking, kPacked, kMoving, kDelivering, kDone };
  struct ChunkInFlight {
    std::uint32_t node = 0;
    std::uint64_t chunk = 0;
    bool arrives = false;
    bool touches_members = false;  // the library reads or writes their memory
    Staged staged;
    std::byte* data = nullptr;  // the bytes that move: staged, or with a member
    std::size_t bytes = 0;
    State state = State::kPacking;
    Flow flow;
    HostTask host_task;
  };
  struct Between {  // this node and another, or itself
    PairStream out, in;
    std::uint64_t next_out = 0, next_in = 0;  // chunks that have not begun
    std::uint64_t next_sent = 0;              // the chunk that is sent next
    std::uint32_t sent_now = 0;               // chunks that the library has
    std::uint32_t out_in_flight = 0, in_in_flight = 0;
  };

  bool goes_inline(const PairStream& stream) const { return stream.bytes <= kInlineBytes; }
  void add_edges(std::uint32_t giver, std::uint32_t getter);
  void add_faces(std::uint32_t giver, std::uint32_t getter);
  bool in_place() const;
  void begin(std::uint32_t node);
  ChunkInFlight& begin_chunk(std::uint32_t node, bool arrives);
  std::size_t go_on(ChunkInFlight& flight);
  const StreamChunk& chunk_of(const ChunkInFlight& flight) const {
    const Between& each = between_[flight.node];
    return (flight.arrives ? each.in : each.out).chunks[flight.chunk];
  }
  void copy(ChunkInFlight& flight, const PairStream& stream, bool packs);
  std::size_t begin_move(ChunkInFlight& flight);
  std::size_t end_move(ChunkInFlight& flight);
  void receive(ChunkInFlight& flight);

  std::vector<Between> between_;  // by node of the span
  std::uint64_t most_chunks_ = 0;
  // Sources and targets share memory: all chunks are packed before any is delivered.
  bool packs_first_ = false;
  bool wants_direct_ = false;
  std::uint64_t unpacked_ = 0;  // chunks that are not packed yet
  std::list<ChunkInFlight> in_flight_;
};

PairOperation::PairOperation(Launched launched, const OperationContext& context)
    : SpanOperation(std::move(launched), context), between_(peers().count()), packs_first_(in_place()) {
  const auto all = static_cast<std::uint32_t>(span().node_of.size());
  for (std::uint32_t giver = 0; giver < all; ++giver)
    for (std::uint32_t getter = 0; getter < all; ++getter)
      has_faces(collective().op) ? add_faces(giver, getter) : add_edges(giver, getter);
  for (Between& each : between_) {
    each.out.cut();
    each.in.cut();
    most_chunks_ = std::max<std::uint64_t>({most_chunks_, each.out.chunks.size(), each.in.chunks.size()});
    unpacked_ += each.out.chunks.size();
    wants_direct_ = wants_direct_ || (&each != &between_[span().here] &&
                                      std::max(each.out.bytes, each.in.bytes) >= context_.direct_from());
  }
  wants_direct_ = wants_direct_ && !packs_first_;
}

PairOperation::~PairOperation() {
  for (ChunkInFlight& flight : in_flight_) context_.staging.give_back(std::move(flight.staged));
}

// ---- streams -----------------------------------------------------------------------------------

// Adds the blocks of `giver` for `getter` to the streams, if one of the two is here.
void PairOperation::add_edges(std::uint32_t giver, std::uint32_t getter) {
  const Collective& c = collective();
  const auto root = static_cast<std::uint32_t>(c.root);
  if (is_transfer(c.op) && (giver != root || getter != static_cast<std::uint32_t>(c.receiver))) return;
  if (c.op == MUSTER_GATHER && getter != root) return;
  if (c.op == MUSTER_SCATTER && giver != root) return;
  const std::size_t element = dtype_bytes(c.dtype);
  const auto length = [&](std::span<const Block> entries) { return count_of(entries) * element; };
  if (const LocalMember* from = find_member(members(), giver)) {
    const auto view = source_block(c, *from, getter, element);
    between_[span().node_of[getter]].out.add(length(view.entries), view);
  }
  if (const LocalMember* to = find_member(members(), getter)) {
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
  if (const LocalMember* from = find_member(members(), giver))
    add(from->share->sends, getter, between_[span().node_of[getter]].out);
  if (const LocalMember* to = find_member(members(), getter))
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

bool PairOperation::flows_are_over() const {
  return std::all_of(in_flight_.begin(), in_flight_.end(),
                     [](const ChunkInFlight& flight) { return flight.flow.pending == 0; });
}

bool PairOperation::resting() const {
  return std::all_of(in_flight_.begin(), in_flight_.end(), [](const ChunkInFlight& flight) {
    return flight.host_task.over() && (flight.flow.pending == 0 || !flight.touches_members);
  });
}

SpanOperation::Inline PairOperation::inline_for(std::uint32_t node) const {
  const Between& each = between_[node];
  if (each.out.bytes == 0 || !goes_inline(each.out)) return {};
  const auto found = std::find_if(in_flight_.begin(), in_flight_.end(), [node](const ChunkInFlight& flight) {
    return flight.node == node && !flight.arrives;
  });
  if (found == in_flight_.end() || found->state == State::kPacking) return {false, {}};
  return {true, {found->data, found->bytes}};
}

std::size_t PairOperation::work() {
  std::size_t moved = 0;
  for (std::uint32_t node = 0; node < peers().count(); ++node) begin(node);
  for (ChunkInFlight& flight : in_flight_)
    while (const std::size_t now = go_on(flight)) moved += now;
  for (auto flight = in_flight_.begin(); flight != in_flight_.end();) {
    if (flight->state != State::kDone) {
      ++flight;
      continue;
    }
    context_.staging.give_back(std::move(flight->staged));
    flight = in_flight_.erase(flight);
    ++moved;
  }
  const bool begun = std::all_of(between_.begin(), between_.end(), [this](const Between& each) {
    const bool self = &each == &between_[span().here];
    return each.next_out == each.out.chunks.size() && (self || each.next_in == each.in.chunks.size());
  });
  if (moves() != Moves::kNotYet && begun && in_flight_.empty()) finish();
  return moved;
}

void PairOperation::begin(std::uint32_t node) {
  Between& each = between_[node];
  const bool is_self = node == span().here;
  // A chunk that goes with the request, or is packed first, does not wait.
  const bool waits = is_self ? !packs_first_ : wants_direct_ && !goes_inline(each.out);
  while ((moves() != Moves::kNotYet || !waits) && each.next_out < each.out.chunks.size() &&
         (packs_first_ || each.out_in_flight < kChunksInFlight)) {
    ChunkInFlight& flight = begin_chunk(node, false);
    if (is_self && !packs_first_) {
      flight.state = State::kPacked;
    } else if (flight.data == flight.staged.data()) {
      copy(flight, each.out, true);
    }
  }
  if (is_self || moves() == Moves::kNotYet) return;
  while (each.next_in < each.in.chunks.size() && each.in_in_flight < kChunksInFlight)
    receive(begin_chunk(node, true));
}

void PairOperation::drain_rest(Rest& rest) {
  for (const ChunkInFlight& flight : in_flight_)
    if (flight.node != span().here && flight.state <= State::kPacked &&
        !goes_inline(between_[flight.node].out))
      rest.send_empty(flight.node, flight.chunk);
  for (std::uint32_t node = 0; node < peers().count(); ++node) {
    const Between& each = between_[node];
    if (node == span().here) continue;
    for (std::uint64_t i = each.next_out; !goes_inline(each.out) && i < each.out.chunks.size(); ++i)
      rest.send_empty(node, i);
    for (std::uint64_t i = each.next_in; !goes_inline(each.in) && i < each.in.chunks.size(); ++i)
      rest.receive_unread(node, i, static_cast<std::size_t>(each.in.chunks[i].end - each.in.chunks[i].begin));
  }
}

PairOperation::ChunkInFlight& PairOperation::begin_chunk(std::uint32_t node, bool arrives) {
  Between& each = between_[node];
  const PairStream& stream = arrives ? each.in : each.out;
  ChunkInFlight& flight = in_flight_.emplace_back();
  flight.flow.urgent = is_urgent(collective());
  flight.node = node;
  flight.arrives = arrives;
  flight.chunk = arrives ? each.next_in++ : each.next_out++;
  ++(arrives ? each.in_in_flight : each.out_in_flight);
  const StreamChunk& chunk = stream.chunks[flight.chunk];
  flight.bytes = static_cast<std::size_t>(chunk.end - chunk.begin);
  if (node == span().here && !packs_first_) return flight;
  if (wants_direct_ && moves() == Moves::kDirect && !goes_inline(stream) &&
      flight.bytes >= context_.freed_on_close_from)
    flight.data = in_one_piece(stream, chunk);
  flight.touches_members = flight.data != nullptr;
  if (flight.touches_members) return flight;
  flight.staged = context_.staging.take(flight.bytes);
  flight.data = flight.staged.data();
  return flight;
}

// Returns 0 if the chunk waits for something.
std::size_t PairOperation::go_on(ChunkInFlight& flight) {
  switch (flight.state) {
    case State::kPacking:
      if (!flight.host_task.over()) return 0;
      --unpacked_;
      flight.state = State::kPacked;
      return 1;
    case State::kPacked:
      return begin_move(flight);
    case State::kMoving:
      return end_move(flight);
    case State::kDelivering: {
      if (!flight.host_task.over()) return 0;
      Between& each = between_[flight.node];
      --(flight.arrives ? each.in_in_flight : each.out_in_flight);
      flight.state = State::kDone;
      return 1;
    }
    case State::kDone:
      return 0;
  }
  return 0;
}

// Begins the move of a chunk: in order, two at a time, unless it is urgent.
std::size_t PairOperation::begin_move(ChunkInFlight& flight) {
  Between& each = between_[flight.node];
  if (moves() == Moves::kNotYet || (packs_first_ && unpacked_ > 0)) return 0;
  if (flight.node == span().here) {
    copy(flight, each.in, false);
    flight.state = State::kDelivering;
    return 1;
  }
  const bool in_turn = flight.chunk == each.next_sent && each.sent_now < 2;
  if (!in_turn && !flight.flow.urgent) return 0;
  ++each.next_sent;
  ++each.sent_now;
  if (PeerNode& peer = peers()[flight.node]; !goes_inline(each.out)) {
    if (flight.flow.urgent) peer.sent_after(to(flight.node).bulk_sending());
    to(flight.node)
        .send(peer.first_tag + flight.chunk, {flight.data, flight.bytes}, flight.flow,
              moves() == Moves::kChecked);
  }
  flight.state = State::kMoving;
  return 1;
}

std::size_t PairOperation::end_move(ChunkInFlight& flight) {
  Between& each = between_[flight.node];
  if (flight.flow.pending > 0 || !ended_well(flight.flow)) return 0;
  if (!flight.arrives) {
    --each.out_in_flight;
    --each.sent_now;
    flight.state = State::kDone;
    return 1;
  }
  if (packs_first_ && unpacked_ > 0) return 0;
  if (!flight.touches_members) copy(flight, each.in, false);
  flight.state = State::kDelivering;
  return 1;
}

// Copies a chunk to or from members. A chunk without memory of its own goes from member to member.
void PairOperation::copy(ChunkInFlight& flight, const PairStream& stream_of_it, bool packs) {
  flight.host_task.start(context_.stream_for(collective().op), 1, flight.bytes <= kSmallBytes,
                         [this, &flight, &stream_of_it, packs](auto) {
                           const StreamChunk& chunk = chunk_of(flight);
                           if (flight.data == nullptr)
                             copy_across(between_[flight.node].out, stream_of_it, chunk);
                           else
                             copy_chunk(stream_of_it, chunk, flight.data, packs);
                         });
}

void PairOperation::receive(ChunkInFlight& flight) {
  flight.state = State::kMoving;
  if (!goes_inline(between_[flight.node].in)) {
    to(flight.node)
        .receive(peers()[flight.node].received_tag() + flight.chunk, {flight.data, flight.bytes}, flight.flow,
                 moves() == Moves::kChecked);
    return;
  }
  const auto& came = peers()[flight.node].request->payload;
  if (came.size() == flight.bytes)
    std::memcpy(flight.data, came.data(), came.size());
  else
    flight.flow.failure = failure(Code::kProtocol, "node {} sent {} bytes with its request where {} were due",
                                  to(flight.node).name(), came.size(), flight.bytes);
}

}  // namespace

std::unique_ptr<SpanOperation> begin_pair_operation(Launched launched, const OperationContext& context) {
  return std::make_unique<PairOperation>(std::move(launched), context);
}

}  // namespace muster::transport::span
