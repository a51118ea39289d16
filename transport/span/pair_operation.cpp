// Collectives that agree pair by pair: ALL_TO_ALL, EXCHANGE, GATHER, SCATTER, SEND, RECV. Streams between
// nodes (pair_plan.hpp) move in chunks, several at once. Data between members of this node is copied from one
// to the other.
#include "kernels/math/copy.hpp"
#include "kernels/math/strided.hpp"
#include "transport/span/operation.hpp"
#include "transport/span/vectors.hpp"

#include <algorithm>
#include <cstring>
#include <list>
#include <memory_resource>
#include <utility>
#include <variant>

namespace muster::transport::span {
namespace {

constexpr std::size_t kChunksInFlight = 4;  // of a stream
constexpr std::size_t kSmallBytes = 32 << 10;

// Whether the elements of a face lie end to end.
bool is_dense(const Face& face) {
  std::int64_t next = 1;
  for (auto dim = static_cast<std::size_t>(face.dims); dim-- > 0;) {
    if (face.size[dim] != 1 && face.stride[dim] != next) return false;
    next *= face.size[dim];
  }
  return true;
}

// The place of a chunk, if that is one piece of a member's memory; else nullptr. `gives`: of what members
// give, which is only read.
std::byte* in_one_piece(const PairStream& stream, const PairStream::Chunk& chunk,
                        std::span<const LocalMember> members, bool gives) {
  if (chunk.last - chunk.first != 1) return nullptr;
  const PairStream::Segment& segment = stream.segments[chunk.first];
  const std::uint64_t first = chunk.begin - segment.begin, last = chunk.end - segment.begin;
  if (const auto* const face = std::get_if<const Face*>(&segment.data))
    return is_dense(**face) ? (*face)->data + first : nullptr;
  std::byte* found = nullptr;
  std::size_t pieces = 0;
  const auto look = [&](const auto& view) {
    view.for_each(first / view.element, last / view.element, [&](auto* data, std::uint64_t, std::uint64_t) {
      found = const_cast<std::byte*>(data);
      ++pieces;
    });
  };
  const auto& block = std::get<PairStream::BlockOfMember>(segment.data);
  if (gives)
    look(block.given(members));
  else
    look(block.got(members));
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
void copy_chunk(const PairStream& stream, const PairStream::Chunk& chunk,
                std::span<const LocalMember> members, std::byte* staged, bool packs) {
  for (std::size_t i = chunk.first; i < chunk.last; ++i) {
    const PairStream::Segment& segment = stream.segments[i];
    const std::uint64_t first = std::max(chunk.begin, segment.begin);
    const std::uint64_t last = std::min(chunk.end, segment.begin + segment.bytes);
    std::byte* const at = staged + (first - chunk.begin);
    const std::uint64_t a = first - segment.begin, b = last - segment.begin;
    if (const auto* each = std::get_if<const Face*>(&segment.data)) {
      const Face& face = **each;
      const std::size_t element = face.element_bytes();
      const std::uint64_t one = a / element, end = b / element;
      // Its element `one` is the first that is staged; those before it are not touched.
      const auto origin = reinterpret_cast<std::uintptr_t>(at) - one * element;
      const Face packed = packed_like(face, reinterpret_cast<std::byte*>(origin));
      math::copy_faces(packs ? packed : face, packs ? face : packed, one, end, element, math::kNeverStream);
      continue;
    }
    const auto& block = std::get<PairStream::BlockOfMember>(segment.data);
    const std::size_t element = block.element;
    if (packs)
      block.given(members).for_each(
          a / element, b / element, [&](const std::byte* data, std::uint64_t f, std::uint64_t n) {
            math::copy(at + (f * element - a), data, n * element, math::kNeverStream);
          });
    else
      block.got(members).for_each(a / element, b / element,
                                  [&](std::byte* data, std::uint64_t f, std::uint64_t n) {
                                    math::copy(data, at + (f * element - a), n * element, math::kNeverStream);
                                  });
  }
}

// Copies from member to member, between the same chunk of two streams of the same lengths.
void copy_across(const PairPlan::Between& within, const PairStream::Chunk& chunk,
                 std::span<const LocalMember> members) {
  for (std::size_t i = chunk.first; i < chunk.last; ++i) {
    const PairStream::Segment &from = within.out.segments[i], &to = within.in.segments[i];
    const std::uint64_t a = std::max(chunk.begin, from.begin) - from.begin;
    const std::uint64_t b = std::min(chunk.end, from.begin + from.bytes) - from.begin;
    if (const auto* face = std::get_if<const Face*>(&from.data)) {
      const std::size_t element = (*face)->element_bytes();
      math::copy_faces(*std::get<const Face*>(to.data), **face, a / element, b / element, element,
                       math::kNeverStream);
      continue;
    }
    const auto source = std::get<PairStream::BlockOfMember>(from.data).given(members);
    const auto target = std::get<PairStream::BlockOfMember>(to.data).got(members);
    const std::size_t element = source.element;
    source.for_each(a / element, b / element, [&](const std::byte* data, std::uint64_t f, std::uint64_t n) {
      target.for_each(f, f + n, [&](std::byte* into, std::uint64_t g, std::uint64_t m) {
        if (const std::byte* const read = data + (g - f) * element; read != into)
          math::copy(into, read, m * element, math::kNeverStream);
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
  Still still() const override;
  bool wants_direct(std::uint32_t node) const override {
    return (prepared().agrees_by_pairs() ? is_large(node) : plan_.is_large) && !packs_first_;
  }
  Inline inline_for(std::uint32_t node) const override;

 private:
  enum class State : std::uint8_t { kPacking, kPacked, kMoving, kDelivering, kDone };
  struct ChunkInFlight {
    std::uint32_t node = 0;
    std::uint64_t chunk = 0;
    bool arrives = false;
    bool touches_members = false;  // the library reads or writes their memory
    Staging::Piece staged;
    std::byte* data = nullptr;  // the bytes that move: staged, or with a member
    std::size_t bytes = 0;
    State state = State::kPacking;
    Flow flow;
    HostTask host_task;
  };
  struct Progress {                           // between this node and another, or itself
    std::uint64_t next_out = 0, next_in = 0;  // chunks that have not begun
    std::uint64_t next_sent = 0;              // the chunk that is sent next
    std::uint32_t out_in_flight = 0, in_in_flight = 0;
  };

  bool is_large(std::uint32_t node) const {
    const PairPlan::Between& each = plan_.between[node];
    return std::max(each.out.bytes, each.in.bytes) >= context_.direct_from();
  }
  void begin(std::uint32_t node);
  ChunkInFlight& begin_chunk(std::uint32_t node, bool arrives);
  std::size_t go_on(ChunkInFlight& flight);
  const PairStream& stream_of(const ChunkInFlight& flight) const {
    const PairPlan::Between& each = plan_.between[flight.node];
    return flight.arrives ? each.in : each.out;
  }
  const PairStream::Chunk& chunk_of(const ChunkInFlight& flight) const {
    return stream_of(flight).chunks[flight.chunk];
  }
  void copy(ChunkInFlight& flight, const PairStream& stream, bool packs);
  std::size_t begin_move(ChunkInFlight& flight);
  std::size_t end_move(ChunkInFlight& flight);
  void receive(ChunkInFlight& flight);

  const PairPlan& plan_;
  std::pmr::vector<Progress> between_;  // by node
  const bool packs_first_;  // sources and targets share memory: all chunks are packed before any is delivered
  std::uint64_t unpacked_;  // chunks that are not packed yet
  std::uint64_t unbegun_;   // chunks, both ways, that have not begun
  std::pmr::list<ChunkInFlight> in_flight_;
};

PairOperation::PairOperation(Launched launched, const OperationContext& context)
    : SpanOperation(std::move(launched), context),
      plan_(*prepared().pair()),
      between_(plan_.nodes.size(), context.memory),
      packs_first_(plan_.in_place(members())),
      unpacked_(plan_.chunks_out),
      unbegun_(plan_.chunks),
      in_flight_(context.memory) {}

PairOperation::~PairOperation() {
  for (ChunkInFlight& flight : in_flight_) context_.staging.give_back(std::move(flight.staged));
}

// ---- progress ----------------------------------------------------------------------------------

SpanOperation::Still PairOperation::still() const {
  Still still = Still::kNothing;
  for (const ChunkInFlight& flight : in_flight_) {
    const bool messages = flight.flow.pending > 0;
    if (!flight.host_task.over() || (messages && flight.touches_members)) return Still::kMore;
    if (messages) still = Still::kMessages;
  }
  return still;
}

SpanOperation::Inline PairOperation::inline_for(std::uint32_t node) const {
  const PairStream& out = plan_.between[node].out;
  if (out.bytes == 0 || !out.goes_inline()) return {};
  const auto found = std::find_if(in_flight_.begin(), in_flight_.end(), [node](const ChunkInFlight& flight) {
    return flight.node == node && !flight.arrives;
  });
  if (found == in_flight_.end() || found->state == State::kPacking) return {false, {}};
  return {true, {found->data, found->bytes}};
}

std::size_t PairOperation::work() {
  std::size_t moved = 0;
  for (std::uint32_t node = 0; unbegun_ > 0 && node < between_.size(); ++node) begin(node);
  for (auto flight = in_flight_.begin(); flight != in_flight_.end();) {
    while (const std::size_t now = go_on(*flight)) moved += now;
    if (flight->state != State::kDone) {
      ++flight;
      continue;
    }
    context_.staging.give_back(std::move(flight->staged));
    flight = in_flight_.erase(flight);
    ++moved;
  }
  if (unbegun_ == 0 && in_flight_.empty() && moves(prepared().here()) != Moves::kNotYet) all_moved();
  return moved;
}

void PairOperation::begin(std::uint32_t node) {
  Progress& each = between_[node];
  const PairPlan::Between& all = plan_.between[node];
  const bool is_self = node == prepared().here(), may_move = moves(node) != Moves::kNotYet;
  // A chunk that goes with the request, or is packed first, does not wait.
  const bool waits = is_self ? !packs_first_ : wants_direct(node) && !all.out.goes_inline();
  while ((may_move || !waits) && each.next_out < all.out.chunks.size() &&
         (packs_first_ || each.out_in_flight < kChunksInFlight)) {
    ChunkInFlight& flight = begin_chunk(node, false);
    if (is_self && !packs_first_) {
      flight.state = State::kPacked;
    } else if (flight.data == flight.staged.data()) {
      copy(flight, all.out, true);
    }
  }
  if (is_self || !may_move) return;
  while (each.next_in < all.in.chunks.size() && each.in_in_flight < kChunksInFlight)
    receive(begin_chunk(node, true));
}

void PairOperation::drain_rest(Rest& rest) {
  for (const ChunkInFlight& flight : in_flight_)
    if (flight.node != prepared().here() && flight.state <= State::kPacked &&
        !stream_of(flight).goes_inline())
      rest.send_empty(flight.node, flight.chunk);
  for (std::uint32_t node = 0; node < between_.size(); ++node) {
    const PairPlan::Between& all = plan_.between[node];
    if (node == prepared().here()) continue;
    for (std::uint64_t i = between_[node].next_out; !all.out.goes_inline() && i < all.out.chunks.size(); ++i)
      rest.send_empty(node, i);
    for (std::uint64_t i = between_[node].next_in; !all.in.goes_inline() && i < all.in.chunks.size(); ++i)
      rest.receive_unread(node, i, all.in.chunks[i].bytes());
  }
}

PairOperation::ChunkInFlight& PairOperation::begin_chunk(std::uint32_t node, bool arrives) {
  Progress& each = between_[node];
  const PairStream& stream = arrives ? plan_.between[node].in : plan_.between[node].out;
  ChunkInFlight& flight = in_flight_.emplace_back();
  flight.flow.urgent = launched().is_urgent();
  flight.node = node;
  flight.arrives = arrives;
  flight.chunk = arrives ? each.next_in++ : each.next_out++;
  ++(arrives ? each.in_in_flight : each.out_in_flight);
  --unbegun_;
  const PairStream::Chunk& chunk = stream.chunks[flight.chunk];
  flight.bytes = chunk.bytes();
  if (node == prepared().here() && !packs_first_) return flight;
  if (wants_direct(node) && moves(node) == Moves::kDirect && !stream.goes_inline() &&
      flight.bytes >= context_.freed_on_close_from)
    flight.data = in_one_piece(stream, chunk, members(), !arrives);
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
      Progress& each = between_[flight.node];
      --(flight.arrives ? each.in_in_flight : each.out_in_flight);
      flight.state = State::kDone;
      return 1;
    }
    case State::kDone:
      return 0;
  }
  return 0;
}

// Begins the move of a chunk: in order, as there is room.
std::size_t PairOperation::begin_move(ChunkInFlight& flight) {
  Progress& each = between_[flight.node];
  if (moves(flight.node) == Moves::kNotYet || (packs_first_ && unpacked_ > 0)) return 0;
  if (flight.node == prepared().here()) {
    copy(flight, plan_.between[flight.node].in, false);
    flight.state = State::kDelivering;
    return 1;
  }
  const bool is_message = !stream_of(flight).goes_inline();
  if (flight.chunk != each.next_sent && !flight.flow.urgent) return 0;
  if (is_message && !send(flight.node, flight.chunk, {flight.data, flight.bytes}, flight.flow)) return 0;
  ++each.next_sent;
  flight.state = State::kMoving;
  return 1;
}

std::size_t PairOperation::end_move(ChunkInFlight& flight) {
  Progress& each = between_[flight.node];
  if (flight.flow.pending > 0 || !ended_well(flight.flow)) return 0;
  if (!flight.arrives) {
    --each.out_in_flight;
    flight.state = State::kDone;
    return 1;
  }
  if (packs_first_ && unpacked_ > 0) return 0;
  if (!flight.touches_members) copy(flight, stream_of(flight), false);
  flight.state = State::kDelivering;
  return 1;
}

// Copies a chunk to or from members. A chunk without memory of its own goes from member to member.
void PairOperation::copy(ChunkInFlight& flight, const PairStream& stream_of_it, bool packs) {
  flight.host_task.start(*launched().stream, 1, flight.bytes <= kSmallBytes,
                         [this, &flight, &stream_of_it, packs](auto) {
                           const PairStream::Chunk& chunk = chunk_of(flight);
                           if (flight.data == nullptr)
                             copy_across(plan_.between[flight.node], chunk, members());
                           else
                             copy_chunk(stream_of_it, chunk, members(), flight.data, packs);
                         });
}

void PairOperation::receive(ChunkInFlight& flight) {
  flight.state = State::kMoving;
  if (!stream_of(flight).goes_inline()) {
    to(flight.node)
        .receive(peers()[flight.node].received_tag() + flight.chunk, {flight.data, flight.bytes}, flight.flow,
                 moves(flight.node) == Moves::kChecked);
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

std::shared_ptr<SpanOperation> begin_pair_operation(Launched launched, const OperationContext& context) {
  return std::allocate_shared<PairOperation>(std::pmr::polymorphic_allocator<>(context.memory),
                                             std::move(launched), context);
}

}  // namespace muster::transport::span
