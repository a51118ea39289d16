// Collectives whose counts all members agree on: ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE,
// BARRIER. The row (row.hpp) moves in chunks. For each chunk the node
//   1. packs the contributions of its members; into one, where they may be combined
//   2. moves and folds by a schedule (schedule.hpp)
//   3. delivers the result to its members.
// Several chunks are on their way at once, so that local work and the network overlap.
//
// A large row moves through the memory of members where that is in one piece (places below). A contribution
// is sent from where its member has it, and results come to the first member that gets them. Data in several
// pieces passes through staging.
//
// Contributions are combined on the node if that changes no bit of the promised result. Sums of floats may
// differ from those of one node by their order, unless the job is `reproducible`. Otherwise contributions
// travel separately, each a row, and are folded in the order of members, by the tree of
// kernels/math/reduce.hpp.
#include "api/base/nodes/averages.hpp"
#include "api/base/nodes/row.hpp"
#include "kernels/math/copy.hpp"
#include "kernels/math/reduce.hpp"
#include "transport/span/operation.hpp"
#include "transport/span/row_memory.hpp"
#include "transport/span/row_plan.hpp"
#include "transport/span/vectors.hpp"

#include <algorithm>
#include <cstring>
#include <list>
#include <memory_resource>
#include <utility>

namespace muster::transport::span {
namespace {

using Range = NodeRow::Range;
using Move = Round::Move;

constexpr std::size_t kBytesInFlight = 3 * kChunkBytes;
constexpr std::size_t kPartBytes = 128 << 10;
constexpr std::size_t kSmallBytes = 32 << 10;  // work that is not worth waking a worker

// The contributions that a fold reads. They are on the stack, because workers fold too.
class FoldSources {
 public:
  void add(const std::byte* source) { all_[count_++] = source; }
  void clear() { count_ = 0; }
  std::span<const std::byte* const> all() const { return {all_, count_}; }

 private:
  const std::byte* all_[math::kReduceSourcesMax];  // unset beyond `count_`
  std::size_t count_ = 0;
};

class RowOperation final : public SpanOperation {
 public:
  RowOperation(Launched launched, const OperationContext& context);
  ~RowOperation() override;

 protected:
  std::size_t work() override;
  void drain_rest(Rest& rest) override;
  Still still() const override;
  bool wants_direct(std::uint32_t /*node*/) const override { return plan_.is_large; }
  Inline inline_for(std::uint32_t node) const override;

 private:
  enum class State : std::uint8_t { kPacking, kReady, kMoving, kFolding, kDelivering, kDone };
  struct ChunkMemory {            // of a slice of a chunk
    std::byte* own = nullptr;     // this node's contributions, row by row
    std::byte* result = nullptr;  // data that comes, or is folded
    bool is_source = false;       // `own` is the member's source, which is not written
    bool is_folded = false;       // `result` has the fold so far
  };
  struct ChunkInFlight {  // a chunk on its way
    explicit ChunkInFlight(std::pmr::memory_resource* memory)
        : cut(memory), places(memory), inbox_at(memory) {}
    std::uint32_t index = 0;
    NodeRow::Chunk cut;                      // a later chunk
    const NodeRow::Chunk* chunk = nullptr;   // that one, or the plan's first
    std::pmr::vector<ChunkMemory> places;    // by slice
    Staging::Piece own;                      // contributions that do not lie with members
    Staging::Piece inbox;                    // of peers, in the present round
    Staging::Piece results;                  // separate from `own` if that has several rows
    std::pmr::vector<std::size_t> inbox_at;  // by node: where its contribution begins
    State state = State::kPacking;
    std::uint32_t round = 0;
    MessageTag number = 0;   // of this round's messages
    std::size_t sent = 0;    // of the round's sends, in order: those that the library has got
    bool is_direct = false;  // messages go from and to members
    Flow flow;
    HostTask host_task;
  };

  // The node's data of a slice, once all rounds are over.
  std::byte* outcome_of(const ChunkInFlight& flight, std::size_t slice) const {
    const ChunkMemory& place = flight.places[slice];
    return !plan_.folds && plan_.gives(static_cast<std::uint32_t>(slice)) ? place.own : place.result;
  }
  Bytes sent(const ChunkInFlight& flight, const Move& move) const;

  bool may_move() const { return moves(prepared().here()) != Moves::kNotYet; }
  void begin_chunk();
  void give_back(ChunkInFlight& flight);
  void place(ChunkInFlight& flight);
  bool is_direct(const ChunkInFlight& flight) const;
  void place_with_members(ChunkInFlight& flight) const;
  std::size_t bytes_to_pack(const ChunkInFlight& flight) const;
  std::size_t go_on(ChunkInFlight& flight);
  void run(ChunkInFlight& flight, std::uint64_t first, std::uint64_t last, std::size_t touched,
           void (RowOperation::*part)(ChunkInFlight&, std::uint64_t, std::uint64_t));
  void pack(ChunkInFlight& flight, std::uint64_t first, std::uint64_t last);
  void begin_receives(ChunkInFlight& flight);
  static void end_round(ChunkInFlight& flight) {
    ++flight.round;
    flight.sent = 0;
    flight.state = State::kReady;
  }
  bool leaves_room(const ChunkInFlight& flight, std::uint32_t node, std::size_t bytes) const;
  std::size_t give(ChunkInFlight& flight);
  bool begin_fold(ChunkInFlight& flight);
  void fold(ChunkInFlight& flight, std::uint64_t first, std::uint64_t last);
  void begin_delivery(ChunkInFlight& flight);
  void deliver(ChunkInFlight& flight, std::uint64_t first, std::uint64_t last);

  const RowPlan& plan_;
  std::uint32_t next_chunk_ = 0;
  std::pmr::list<ChunkInFlight> in_flight_;
};

RowOperation::RowOperation(Launched launched, const OperationContext& context)
    : SpanOperation(std::move(launched), context), plan_(*prepared().row()), in_flight_(context.memory) {}

RowOperation::~RowOperation() {
  for (ChunkInFlight& flight : in_flight_) give_back(flight);
}

void RowOperation::give_back(ChunkInFlight& flight) {
  for (Staging::Piece* each : {&flight.own, &flight.inbox, &flight.results})
    context_.staging.give_back(std::move(*each));
}

SpanOperation::Still RowOperation::still() const {
  Still still = Still::kNothing;
  for (const ChunkInFlight& flight : in_flight_) {
    const bool messages = flight.flow.pending > 0;
    if (!flight.host_task.over() || (messages && flight.is_direct)) return Still::kMore;
    if (messages) still = Still::kMessages;
  }
  return still;
}

SpanOperation::Inline RowOperation::inline_for(std::uint32_t node) const {
  if (in_flight_.empty()) return {plan_.chunks != 1 || plan_.is_large, {}};
  const ChunkInFlight& flight = in_flight_.front();
  for (const Move& move : plan_.schedule.front().sends) {
    if (move.peer != node ||
        !plan_.goes_inline(0, plan_.bytes_of(*flight.chunk, move, plan_.rows_of(prepared().here()))))
      continue;
    if (flight.state == State::kPacking) return {false, {}};
    return {true, sent(flight, move)};
  }
  return {};
}

std::size_t RowOperation::work() {
  std::size_t moved = 0;
  if (plan_.is_large && !may_move()) return 0;
  while (next_chunk_ < plan_.chunks && in_flight_.size() < kBytesInFlight / plan_.chunk_bytes) begin_chunk();
  for (ChunkInFlight& flight : in_flight_)
    while (const std::size_t now = go_on(flight)) moved += now;
  while (!in_flight_.empty() && in_flight_.front().state == State::kDone) {
    give_back(in_flight_.front());
    in_flight_.pop_front();
    ++moved;
  }
  if (may_move() && next_chunk_ == plan_.chunks && in_flight_.empty()) all_moved();
  return moved;
}

// ---- a chunk -----------------------------------------------------------------------------------

void RowOperation::begin_chunk() {
  ChunkInFlight& flight = in_flight_.emplace_back(context_.memory);
  flight.flow.urgent = launched().is_urgent();
  flight.index = next_chunk_++;
  flight.chunk = &plan_.chunk(flight.index, flight.cut);
  place(flight);
  if (const std::size_t bytes = bytes_to_pack(flight); bytes > 0)
    run(flight, 0, flight.chunk->elements(), bytes, &RowOperation::pack);
}

// ---- where slices lie --------------------------------------------------------------------------

void RowOperation::place(ChunkInFlight& flight) {
  const std::uint32_t rows = plan_.rows_of(prepared().here());
  const auto& at = flight.chunk->at;
  flight.places.resize(peers().count());
  flight.is_direct = plan_.is_large && is_direct(flight);
  if (flight.is_direct) place_with_members(flight);
  const std::size_t bytes = flight.chunk->elements() * plan_.element;
  const bool is_staged =
      std::any_of(flight.places.begin(), flight.places.end(), [&](const ChunkMemory& place) {
        const auto slice = static_cast<std::uint32_t>(&place - flight.places.data());
        return at[slice] < at[slice + 1] && ((plan_.gives(slice) && place.own == nullptr) ||
                                             (plan_.lands[slice] && place.result == nullptr));
      });
  if (is_staged) flight.own = context_.staging.take(bytes * rows);
  if (rows > 1) flight.results = context_.staging.take(bytes);
  const Staging::Piece& results = rows > 1 ? flight.results : flight.own;
  for (std::size_t slice = 0; is_staged && slice < flight.places.size(); ++slice) {
    ChunkMemory& place = flight.places[slice];
    if (place.own == nullptr) place.own = flight.own.data() + at[slice] * rows * plan_.element;
    if (place.result == nullptr) place.result = results.data() + at[slice] * plan_.element;
  }
}

// Whether no message of the chunk is too short for that.
bool RowOperation::is_direct(const ChunkInFlight& flight) const {
  return std::all_of(flight.chunk->slices.begin(), flight.chunk->slices.end(), [this](Range slice) {
    return slice.count() == 0 || slice.count() * plan_.element >= context_.freed_on_close_from;
  });
}

// Slices of a vector lie end to end in the row, and moves may name several of them: they are placed together.
void RowOperation::place_with_members(ChunkInFlight& flight) const {
  const auto& slices = flight.chunk->slices;
  const bool is_vector = !has_agreed_blocks(prepared().collective().op);
  const Range all{slices.front().first, slices.back().last};
  const auto in_vector = [&](std::byte* begin, Range range) {
    return begin == nullptr ? nullptr : begin + (range.first - all.first) * plan_.element;
  };
  const RowMemory memory(prepared().collective(), plan_.row, members());
  std::byte* const source = is_vector && plan_.gives(0) ? memory.source_of(all) : nullptr;
  std::byte* const target =
      is_vector && (plan_.needs(0) || plan_.needs(prepared().here())) ? memory.target_of(all) : nullptr;
  for (std::uint32_t slice = 0; slice < slices.size(); ++slice) {
    ChunkMemory& place = flight.places[slice];
    const Range range = slices[slice];
    if (plan_.needs(slice)) place.result = is_vector ? in_vector(target, range) : memory.target_of(range);
    if (!plan_.gives(slice)) continue;
    place.own = is_vector ? in_vector(source, range) : memory.source_of(range);
    place.is_source = place.own != nullptr;
    if (place.own == nullptr) place.own = place.result;
  }
}

// The bytes that packing reads and writes.
std::size_t RowOperation::bytes_to_pack(const ChunkInFlight& flight) const {
  std::size_t bytes = 0;
  for (std::uint32_t slice = 0; slice < flight.places.size(); ++slice)
    if (plan_.gives(slice) && !flight.places[slice].is_source)
      bytes += flight.chunk->slices[slice].count() * plan_.element * (plan_.folds ? members().size() + 1 : 2);
  return bytes;
}

// ---- rounds ------------------------------------------------------------------------------------

// Returns 0 if the chunk waits for something.
std::size_t RowOperation::go_on(ChunkInFlight& flight) {
  switch (flight.state) {
    case State::kPacking:
      if (!flight.host_task.over()) return 0;
      flight.state = State::kReady;
      return 1;
    case State::kReady:
      if (!may_move()) return 0;
      if (flight.round == plan_.schedule.size()) {
        begin_delivery(flight);
        flight.state = State::kDelivering;
      } else {
        flight.number = plan_.number_of(flight.index, flight.round);
        begin_receives(flight);
        flight.state = State::kMoving;
      }
      return 1;
    case State::kMoving:
      if (const std::size_t given = give(flight)) return given;
      if (flight.sent < plan_.schedule[flight.round].sends.size() || flight.flow.pending > 0 ||
          !ended_well(flight.flow))
        return 0;
      if (begin_fold(flight)) {
        flight.state = State::kFolding;
      } else {
        end_round(flight);
      }
      return 1;
    case State::kFolding:
      if (!flight.host_task.over()) return 0;
      for (const Move& move : plan_.schedule[flight.round].receives)
        for (std::uint32_t slice = move.first; !move.result && slice < move.last; ++slice)
          flight.places[slice].is_folded = true;
      end_round(flight);
      return 1;
    case State::kDelivering:
      if (!flight.host_task.over()) return 0;
      flight.state = State::kDone;
      return 1;
    case State::kDone:
      return 0;
  }
  return 0;
}

// Runs `part` over elements [first, last) of the chunk; `touched` bytes are read and written.
void RowOperation::run(ChunkInFlight& flight, std::uint64_t first, std::uint64_t last, std::size_t touched,
                       void (RowOperation::*part)(ChunkInFlight&, std::uint64_t, std::uint64_t)) {
  const std::uint64_t length = last - first;
  const auto parts = static_cast<std::uint32_t>(std::max<std::size_t>(1, touched / kPartBytes));
  flight.host_task.start(
      *launched().stream, parts, touched <= kSmallBytes, [=, this, &flight](std::uint32_t index) {
        const std::uint64_t from = first + length * index / parts, to = first + length * (index + 1) / parts;
        if (from < to) (this->*part)(flight, from, to);
      });
}

// ---- contributions of members ------------------------------------------------------------------

void RowOperation::pack(ChunkInFlight& flight, std::uint64_t first, std::uint64_t last) {
  const Collective& c = prepared().collective();
  flight.chunk->for_each_slice(first, last, [&](std::size_t slice, Range range) {
    const ChunkMemory& place = flight.places[slice];
    if (!plan_.gives(static_cast<std::uint32_t>(slice)) || place.is_source) return;
    const std::uint64_t length = flight.chunk->slices[slice].count();
    plan_.row.for_each_block(range, [&](std::uint32_t block, Range elements, std::uint64_t at) {
      const std::uint64_t into = at - flight.chunk->slices[slice].first;
      const auto row = [&](std::uint32_t r, std::uint64_t element) {
        return place.own + (r * length + into + element) * plan_.element;
      };
      const auto copy_from = [&](const LocalMember& giver, std::uint32_t r) {
        const auto view = source_block(c, giver, block, plan_.element);
        view.for_each(elements.first, elements.last,
                      [&](const std::byte* from, std::uint64_t f, std::uint64_t n) {
                        std::byte* const to = row(r, f - elements.first);
                        if (to != from) math::copy(to, from, n * plan_.element, math::kNeverStream);
                      });
      };
      if (!plan_.folds) {
        const auto giver = c.op == MUSTER_ALL_GATHER ? block : static_cast<std::uint32_t>(c.root);
        return copy_from(*find_member(members(), giver), 0);
      }
      if (plan_.unfolded) {
        for (std::uint32_t r = 0; r < members().size(); ++r) copy_from(members()[r], r);
        return;
      }
      // All members have their pieces at the same elements, so the first one's fragments are those of all.
      const auto lead = source_block(c, members().front(), block, plan_.element);
      for_each_fragment(lead.entries, elements.first, elements.last, [&](const Block::Fragment& fragment) {
        const std::uint64_t within = fragment.cut_offset - lead.entries[fragment.piece].offset;
        FoldSources sources;
        for (const LocalMember& giver : members()) {
          const auto view = source_block(c, giver, block, plan_.element);
          sources.add(view.base + (view.entries[fragment.piece].offset + within) * plan_.element);
        }
        const muster_redop redop = c.redop == MUSTER_AVG ? MUSTER_SUM : c.redop;
        math::reduce(c.dtype, redop, sources.all(), row(0, fragment.first - elements.first), fragment.count,
                     c.scale);
      });
    });
  });
}

// ---- between nodes -----------------------------------------------------------------------------

Bytes RowOperation::sent(const ChunkInFlight& flight, const Move& move) const {
  const std::size_t bytes = plan_.bytes_of(*flight.chunk, move, plan_.rows_of(prepared().here()));
  if (!plan_.folds) return {outcome_of(flight, move.first), bytes};
  const ChunkMemory& place = flight.places[move.first];
  return {move.result || place.is_folded ? place.result : place.own, bytes};
}

// Whether the operation's other chunks let this one give the node so many bytes now.
bool RowOperation::leaves_room(const ChunkInFlight& flight, std::uint32_t node, std::size_t bytes) const {
  std::pmr::vector<ChunkToNode> chunks(context_.memory);
  for (const ChunkInFlight& each : in_flight_) {
    ChunkToNode& chunk = chunks.emplace_back();
    for (std::uint32_t round = each.round; round < plan_.schedule.size(); ++round) {
      const auto& sends = plan_.schedule[round].sends;
      const auto move = std::ranges::find(sends, node, &Move::peer);
      if (move == sends.end()) continue;
      const std::size_t of_round = plan_.bytes_of(*each.chunk, *move, plan_.rows_of(prepared().here()));
      const bool is_given = round == each.round && static_cast<std::size_t>(move - sends.begin()) < each.sent;
      if (!is_given)
        chunk.later = std::max(chunk.later, of_round);
      else if (each.flow.sending > 0)
        chunk.now = of_round;
    }
  }
  return span::may_give(chunks, flight.index - in_flight_.front().index, bytes);
}

// Gives the library what the chunk sends in its round, move by move, as there is room. Returns how many.
std::size_t RowOperation::give(ChunkInFlight& flight) {
  if (!may_move()) return 0;  // another chunk has failed
  const auto& sends = plan_.schedule[flight.round].sends;
  const std::size_t before = flight.sent;
  for (; flight.sent < sends.size(); ++flight.sent) {
    const Move& move = sends[flight.sent];
    const std::size_t bytes = plan_.bytes_of(*flight.chunk, move, plan_.rows_of(prepared().here()));
    if (bytes == 0 || plan_.goes_inline(flight.round, bytes)) continue;
    if (!flight.flow.urgent && !leaves_room(flight, move.peer, bytes)) {
      to(move.peer).room().leave(this);
      break;
    }
    if (!send(move.peer, flight.number, sent(flight, move), flight.flow)) break;
  }
  return flight.sent - before;
}

void RowOperation::begin_receives(ChunkInFlight& flight) {
  const Round& round = plan_.schedule[flight.round];
  std::size_t inbox = 0;
  flight.inbox_at.assign(peers().count(), 0);
  for (const Move& move : round.receives) {
    if (move.result) continue;
    flight.inbox_at[move.peer] = inbox;
    inbox += plan_.bytes_of(*flight.chunk, move, plan_.rows_of(move.peer));
  }
  if (inbox > flight.inbox.bytes) {
    context_.staging.give_back(std::move(flight.inbox));
    flight.inbox = context_.staging.take(inbox);
  }
  for (const Move& move : round.receives) {
    const std::size_t bytes = plan_.bytes_of(*flight.chunk, move, plan_.rows_of(move.peer));
    if (bytes == 0) continue;
    std::byte* const into =
        move.result ? flight.places[move.first].result : flight.inbox.data() + flight.inbox_at[move.peer];
    if (!plan_.goes_inline(flight.round, bytes)) {
      to(move.peer).receive(peers()[move.peer].received_tag() + flight.number, {into, bytes}, flight.flow,
                            moves(move.peer) == Moves::kChecked);
      continue;
    }
    const auto& came = peers()[move.peer].request->payload;
    if (came.size() == bytes)
      std::memcpy(into, came.data(), bytes);
    else if (flight.flow.failure.ok())
      flight.flow.failure =
          failure(Code::kProtocol, "node {} sent {} bytes with its request where {} were due",
                  to(move.peer).name(), came.size(), bytes);
  }
}

// Flights are the chunks before the next one; earlier chunks have ended.
void RowOperation::drain_rest(Rest& rest) {
  auto flight = in_flight_.begin();
  for (auto index = next_chunk_ - static_cast<std::uint32_t>(in_flight_.size()); index < plan_.chunks;
       ++index) {
    std::size_t now = 0, begun = 0,
                sent = 0;  // its round, rounds whose receives have begun, sends of its round
    if (flight != in_flight_.end()) {
      now = flight->round;
      begun = now + (flight->state == State::kMoving || flight->state == State::kFolding ? 1 : 0);
      sent = flight->sent;
      ++flight;
    }
    NodeRow::Chunk room(context_.memory);
    const NodeRow::Chunk& chunk = plan_.chunk(index, room);
    for (std::size_t round = now; round < plan_.schedule.size(); ++round) {
      const MessageTag number = plan_.number_of(index, round);
      const auto is_message = [&](std::size_t bytes) {
        return bytes > 0 && !plan_.goes_inline(round, bytes);
      };
      for (const Move& move : plan_.schedule[round].receives)
        if (const std::size_t bytes = plan_.bytes_of(chunk, move, plan_.rows_of(move.peer));
            round >= begun && is_message(bytes))
          rest.receive_unread(move.peer, number, bytes);
      for (const Move& move : std::span(plan_.schedule[round].sends).subspan(round == now ? sent : 0))
        if (is_message(plan_.bytes_of(chunk, move, plan_.rows_of(prepared().here()))))
          rest.send_empty(move.peer, number);
    }
  }
}

// False: there is nothing to fold in this round.
bool RowOperation::begin_fold(ChunkInFlight& flight) {
  const auto& receives = plan_.schedule[flight.round].receives;
  const auto folded = std::ranges::find(receives, false, &Move::result);
  if (folded == receives.end()) return false;
  const std::uint64_t first = flight.chunk->at[folded->first], last = flight.chunk->at[folded->last];
  if (first == last) return false;
  run(flight, first, last, static_cast<std::size_t>(last - first) * plan_.element * (receives.size() + 2),
      &RowOperation::fold);
  return true;
}

void RowOperation::fold(ChunkInFlight& flight, std::uint64_t first, std::uint64_t last) {
  const Collective& c = prepared().collective();
  const auto& receives = plan_.schedule[flight.round].receives;
  const auto& at = flight.chunk->at;
  const std::uint64_t region = at[std::ranges::find(receives, false, &Move::result)->first];
  FoldSources sources;
  for (std::size_t slice = 0; slice < flight.chunk->slices.size(); ++slice) {
    const std::uint64_t from = std::max(first, at[slice]), to = std::min(last, at[slice + 1]);
    if (from >= to) continue;
    const std::uint64_t length = at[slice + 1] - at[slice], into = from - at[slice];
    const ChunkMemory& place = flight.places[slice];
    // Row r of a node's contribution to this slice.
    const auto row = [&](std::uint32_t node, std::uint32_t r) -> const std::byte* {
      const std::uint64_t element = r * length + into;
      if (node == prepared().here())
        return (place.is_folded ? place.result : place.own) + element * plan_.element;
      return flight.inbox.data() + flight.inbox_at[node] +
             ((at[slice] - region) * plan_.rows_of(node) + element) * plan_.element;
    };
    sources.clear();
    if (plan_.unfolded) {
      for (std::size_t m = 0; m < plan_.ordinal.size(); ++m)
        sources.add(row(prepared().span().node_of[m], plan_.ordinal[m]));
    } else {
      for (std::uint32_t node = 0; node < peers().count(); ++node) {
        const bool takes = node == prepared().here() ||
                           std::any_of(receives.begin(), receives.end(),
                                       [&](const Move& move) { return move.peer == node && !move.result; });
        if (takes) sources.add(row(node, 0));
      }
    }
    math::reduce(c.dtype, plan_.unfolded ? c.redop : folded_by(c.redop), sources.all(),
                 place.result + into * plan_.element, static_cast<std::size_t>(to - from), c.scale);
  }
}

// ---- results for members -----------------------------------------------------------------------

void RowOperation::begin_delivery(ChunkInFlight& flight) {
  const bool any = !members().empty() && (plan_.needs(prepared().here()) || plan_.needs(0));
  if (!any) return;
  const std::size_t bytes = flight.chunk->elements() * plan_.element * (members().size() + 1);
  run(flight, 0, flight.chunk->elements(), bytes, &RowOperation::deliver);
}

void RowOperation::deliver(ChunkInFlight& flight, std::uint64_t first, std::uint64_t last) {
  const Collective& c = prepared().collective();
  flight.chunk->for_each_slice(first, last, [&](std::size_t slice, Range range) {
    if (!plan_.needs(static_cast<std::uint32_t>(slice))) return;
    std::byte* const outcome = outcome_of(flight, slice);
    const std::uint64_t begin = flight.chunk->slices[slice].first;
    if (plan_.folds && !plan_.unfolded && c.redop == MUSTER_AVG)
      average(outcome + (range.first - begin) * plan_.element, range.count(), prepared().span().ranks(),
              c.dtype == MUSTER_F64);
    plan_.row.for_each_block(range, [&](std::uint32_t block, Range elements, std::uint64_t at) {
      const auto to = [&](const LocalMember& getter) {
        if (getter.bases.target == nullptr) return;  // the root may ask for no copy of its own
        const auto view = target_block(c, getter, block, plan_.element);
        view.for_each(elements.first, elements.last, [&](std::byte* into, std::uint64_t f, std::uint64_t n) {
          const std::byte* const from = outcome + (at - begin + (f - elements.first)) * plan_.element;
          if (into != from) math::copy(into, from, n * plan_.element, math::kNeverStream);
        });
      };
      if (may_share_target(c.op)) {
        for (const LocalMember& getter : members()) {
          to(getter);
          if (c.shared_memory != 0) break;
        }
      } else if (const LocalMember* getter = find_member(
                     members(), gets_at_root(c.op) ? static_cast<std::uint32_t>(c.root) : block)) {
        to(*getter);
      }
    });
  });
}

}  // namespace

std::shared_ptr<SpanOperation> begin_row_operation(Launched launched, const OperationContext& context) {
  return std::allocate_shared<RowOperation>(std::pmr::polymorphic_allocator<>(context.memory),
                                            std::move(launched), context);
}

}  // namespace muster::transport::span
