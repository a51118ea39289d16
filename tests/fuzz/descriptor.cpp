// A client's descriptions of work, and the engine's plans for them: PlanKernel, and PlanCollective with all
// its lists. A granted plan touches nothing outside the buffers that it names. Kernels run on memory that
// AddressSanitizer guards. Separate arithmetic checks that blocks and faces lie in their buffers.
#include "api/base/collective/path.hpp"
#include "api/base/dtype.hpp"
#include "api/shm/message.hpp"
#include "api/shm/tail.hpp"
#include "daemon/engine/session/resolve.hpp"
#include "daemon/engine/session/session.hpp"
#include "kernels/device/registry.hpp"
#include "kernels/table.hpp"
#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/heap_device.hpp"
#include "tests/fuzz/promise.hpp"
#include "tests/fuzz/target.hpp"

namespace muster::engine {
namespace {

__extension__ using Wide = __int128;
using fuzz::Bytes;

constexpr std::uint64_t kEpoch = 77;
constexpr std::uint32_t kRank = 1;
constexpr std::uint64_t kBufferBytes[] = {4096, 1000, 64, 8};
constexpr std::size_t kBuffers = std::size(kBufferBytes);
// The limit for sizes of an empty view, which no memory bounds.
constexpr Wide kSizesMax = Wide{1} << 31;
constexpr std::uint64_t kFacesMax = 6;

// One session with a few buffers, in a job of four ranks. It is the same for all inputs: resolving changes
// nothing.
struct Rig {
  Rig() : arena(device, {std::uint64_t{1} << 16, std::uint64_t{1} << 16}) {
    shm::Headroom room;
    SessionOptions options{Rank(kRank), 4, SessionId(1), 1, kBuffers, 4, std::chrono::seconds(1), &table};
    session = std::make_unique<Session>(options, *shm::SubmissionView::create(room),
                                        *shm::CompletionView::create(1, kEpoch, room), arena);
    for (std::size_t i = 0; i < kBuffers; ++i) {
      handles[i] = add_buffer(kBufferBytes[i]).bits;
      // No buffer of the session: a handle that is made up may be that of any.
      const Arena::Grant gap = *arena.allocate(Arena::kAlignment);
      fuzz::poison(gap.data, Arena::kAlignment);
      fuzz::poison(data(i) + kBufferBytes[i], static_cast<std::size_t>(gap.data - data(i)) - kBufferBytes[i]);
    }
    groups.push_back({"world", {Rank(0), Rank(1), Rank(2), Rank(3)}});
    groups.push_back({"tp", {Rank(0), Rank(1)}});
    groups.push_back({"others", {Rank(2), Rank(3)}});
    for (std::uint32_t rank = 0; rank < 4; ++rank) groups.push_back({"self", {Rank(rank)}});
    device::PoolOptions by_hand;
    pool = device::Pool::open_manual(by_hand);
    runner = *device::open({}, *pool);
    stream = *runner->open_stream(device::Priority::kNormal);
  }
  Handle add_buffer(std::uint64_t bytes) {
    Buffer buffer;
    buffer.grant = *arena.allocate(bytes);
    buffer.bytes = bytes;
    return *session->buffers().add(std::move(buffer));
  }
  std::byte* data(std::size_t i) const { return session->buffers().find(Handle(handles[i]))->grant.data; }
  Scope scope() const { return session->scope(groups); }

  GroupTable table{{3, 4, 0}, kEpoch};
  fuzz::HeapDevice device;
  Arena arena;
  std::unique_ptr<Session> session;
  std::uint64_t handles[kBuffers];
  std::vector<scheduler::Group> groups;
  std::unique_ptr<device::Pool> pool;
  std::unique_ptr<device::Device> runner;
  std::unique_ptr<device::Stream> stream;
};

Rig& rig() {
  static Rig the_rig;
  return the_rig;
}

std::uint64_t any_buffer(Bytes& bytes) {
  const auto which = bytes.below(8);
  if (which < kBuffers) return rig().handles[which];
  if (which == kBuffers) return 0;
  return which == kBuffers + 1 ? rig().handles[0] + 1 : bytes.take<std::uint64_t>();
}

std::int64_t any_size(Bytes& bytes) {
  return static_cast<std::int64_t>(bytes.number());
}

// A view, mostly as programs write them: rows behind each other.
muster_tensor any_view(Bytes& bytes, muster_dtype dtype) {
  muster_tensor view{};
  view.buffer = any_buffer(bytes);
  view.offset_bytes = bytes.flag() ? 0 : bytes.number();
  view.dtype = bytes.below(8) == 0 ? static_cast<muster_dtype>(bytes.below(13)) : dtype;
  view.dims = bytes.below(32) == 0 ? bytes.take<std::int32_t>() : static_cast<std::int32_t>(bytes.below(9));
  const bool packed = bytes.below(4) != 0;
  std::int64_t stride = 1;
  for (auto d = static_cast<int>(shm::dims_sent(view.dims)) - 1; d >= 0; --d) {
    view.size[d] = any_size(bytes);
    view.stride[d] = packed ? stride : any_size(bytes);
    if (__builtin_mul_overflow(stride, view.size[d], &stride)) stride = 1;
  }
  return view;
}

// ---- messages ----------------------------------------------------------------------------------

// The tail of a message, now and then with a byte changed, with bytes cut off or added. It ends where its
// memory ends.
std::vector<std::byte> damaged(Bytes& bytes, std::vector<std::byte> tail) {
  const auto how = bytes.below(24);
  if (how == 1) tail.resize(std::min<std::size_t>(tail.size(), bytes.number()));
  if (how == 2) tail.resize(tail.size() + bytes.below(20));
  if (how == 3 && !tail.empty())
    tail[bytes.take<std::uint16_t>() % tail.size()] = static_cast<std::byte>(bytes.take<std::uint8_t>());
  return {tail.begin(), tail.end()};
}

// The kernel as the engine reads it; none if it is longer or shorter than its message.
std::optional<muster_kernel> received(Bytes& bytes, const muster_kernel& kernel) {
  const std::vector<std::byte> whole = shm::tail_for(kernel);
  const auto again = shm::kernel_in(shm::message_of(kernel), whole);
  MUSTER_PROMISE(again && shm::tail_for(*again) == whole);
  const auto read = shm::kernel_in(shm::message_of(kernel), damaged(bytes, whole));
  if (read) return *read;
  MUSTER_PROMISE(read.error().code() == Code::kProtocol && !read.error().message().empty());
  return std::nullopt;
}

// The same for the lists of a collective, whose lengths it fills in.
std::optional<CollectiveLists> received(Bytes& bytes, shm::PlanCollective& m, const CollectiveLists& lists) {
  std::vector<std::byte> tail;
  std::uint32_t* const lengths[] = {&m.source_counts, &m.source_offsets, &m.target_counts, &m.target_offsets};
  const std::vector<std::uint64_t>* const numbers[] = {&lists.source_counts, &lists.source_offsets,
                                                       &lists.target_counts, &lists.target_offsets};
  for (std::size_t i = 0; i < std::size(lengths); ++i) {
    *lengths[i] = static_cast<std::uint32_t>(numbers[i]->size());
    shm::append(tail, std::span(*numbers[i]));
  }
  m.piece_counts = static_cast<std::uint32_t>(lists.piece_counts.size());
  m.pieces = static_cast<std::uint32_t>(lists.pieces.size());
  shm::append(tail, std::span(lists.piece_counts));
  shm::append(tail, std::span(lists.pieces));
  for (const auto* faces : {&lists.sends, &lists.receives})
    for (const muster_face& face : *faces) shm::append(tail, face);
  m.sends = static_cast<std::uint32_t>(lists.sends.size());
  m.receives = static_cast<std::uint32_t>(lists.receives.size());
  const auto whole = lists_in(m, tail);
  MUSTER_PROMISE(whole && whole->sends.size() == m.sends && whole->target_offsets == lists.target_offsets);
  if (bytes.below(16) == 1) m.sends = static_cast<std::uint32_t>(bytes.number());
  if (bytes.below(16) == 1) m.target_counts = static_cast<std::uint32_t>(bytes.number());
  if (bytes.below(16) == 1) m.pieces = static_cast<std::uint32_t>(bytes.number());
  const auto read = lists_in(m, damaged(bytes, tail));
  if (read) return *read;
  MUSTER_PROMISE(read.error().code() == Code::kProtocol && !read.error().message().empty());
  return std::nullopt;
}

// ---- kernels -----------------------------------------------------------------------------------

void check_inside(const kernels::Tensor& tensor) {
  if (!tensor.present()) return;
  bool empty = false;
  Wide sizes = 1;  // that are not 0
  for (std::int32_t d = 0; d < tensor.dims; ++d) {
    const std::int64_t size = tensor.size[static_cast<std::size_t>(d)];
    empty = empty || size == 0;
    sizes *= std::max<std::int64_t>(size, 1);
    MUSTER_PROMISE(sizes <= kSizesMax);
  }
  if (empty) return;
  Wide last = 0;
  for (std::int32_t d = 0; d < tensor.dims; ++d) {
    const auto i = static_cast<std::size_t>(d);
    MUSTER_PROMISE(tensor.size[i] > 0 && tensor.stride[i] >= 0);
    last += static_cast<Wide>(tensor.size[i] - 1) * tensor.stride[i];
  }
  // A few bytes seen over and over would be work without end.
  MUSTER_PROMISE(sizes <= last + 1);
  const auto end = (last + 1) * static_cast<Wide>(dtype_bytes(tensor.dtype));
  for (std::size_t i = 0; i < kBuffers; ++i) {
    const auto offset = tensor.data - rig().data(i);
    if (offset < 0 || static_cast<std::uint64_t>(offset) > kBufferBytes[i]) continue;
    MUSTER_PROMISE(offset + end <= static_cast<Wide>(kBufferBytes[i]));
    return;
  }
  MUSTER_PROMISE(false && "a view lies in a buffer");
}

void fill_memory(Bytes& bytes) {
  const auto pattern = bytes.some(64);
  for (std::size_t i = 0; i < kBuffers; ++i)
    for (std::size_t k = 0; k < kBufferBytes[i]; ++k)
      rig().data(i)[k] = pattern.empty() ? std::byte{0} : std::byte{pattern[k % pattern.size()]};
}

void kernel(Bytes& bytes) {
  const auto rows = kernels::all();
  muster_kernel said{};
  const auto which = bytes.below(rows.size() + 2);
  const auto* row = which < rows.size() ? &rows[which] : nullptr;
  said.op = row != nullptr ? row->op : bytes.take<std::int32_t>();
  said.tensor_count = row != nullptr ? static_cast<std::uint32_t>(row->operands.size()) : 0;
  if (bytes.below(16) == 0) said.tensor_count = bytes.take<std::uint32_t>();
  const auto dtype = bytes.flag() ? static_cast<muster_dtype>(MUSTER_F32)
                                  : static_cast<muster_dtype>(1 + bytes.below(MUSTER_F8_E5M2));
  muster_tensor shared = any_view(bytes, dtype);
  for (std::size_t i = 0; i < MUSTER_KERNEL_TENSORS_MAX; ++i) {
    if (i >= said.tensor_count) break;
    said.tensors[i] = shared;
    const auto how = bytes.below(4);
    if (how == 0) said.tensors[i] = any_view(bytes, dtype);
    if (how == 1) said.tensors[i].buffer = any_buffer(bytes);
  }
  said.int_count = row != nullptr ? row->ints : bytes.take<std::uint32_t>();
  said.real_count = row != nullptr ? row->reals : 0;
  if (bytes.below(16) == 1) said.int_count = bytes.take<std::uint32_t>();
  if (bytes.below(16) == 1) said.real_count = bytes.take<std::uint32_t>();
  for (std::size_t i = 0; i < std::min<std::size_t>(said.int_count, std::size(said.ints)); ++i)
    said.ints[i] = static_cast<std::int64_t>(bytes.number());
  for (std::size_t i = 0; i < std::min<std::size_t>(said.real_count, std::size(said.reals)); ++i)
    said.reals[i] = bytes.flag() ? static_cast<double>(bytes.below(8)) : bytes.take<double>();
  const auto read = received(bytes, said);
  if (!read) return;
  const auto plan = resolve_kernel(rig().scope(), *read);
  if (!plan) {
    MUSTER_PROMISE(static_cast<int>(plan.error().code()) < 0 && !plan.error().message().empty());
    return;
  }
  const scheduler::KernelWork& work = *(*plan)->kernel();
  for (const kernels::Tensor& tensor : work.args.tensors) check_inside(tensor);
  for (const Handle held : (*plan)->buffers) MUSTER_PROMISE(rig().session->buffers().find(held) != nullptr);
  fill_memory(bytes);
  if (!kernels::launch(*rig().stream, *work.kernel, work.args).ok()) return;
  while (rig().pool->run_once() > 0) continue;
}

// ---- collectives -------------------------------------------------------------------------------

std::vector<std::uint64_t> any_list(Bytes& bytes) {
  const auto how = bytes.below(8);
  std::vector<std::uint64_t> list(how < 4 ? 0 : how == 4 ? bytes.below(9) : how == 5 ? 2 : 4);
  for (auto& value : list) value = bytes.number();
  return list;
}

// Pieces of blocks, mostly as many as their counts say.
void add_pieces(Bytes& bytes, CollectiveLists& lists) {
  std::uint64_t pieces = 0;
  lists.piece_counts.resize(bytes.flag() ? 4 : bytes.below(6));
  for (auto& count : lists.piece_counts)
    pieces += count = static_cast<std::uint32_t>(bytes.below(8) == 1 ? bytes.number() : bytes.below(4));
  lists.pieces.resize(bytes.below(8) == 1 ? bytes.below(9) : std::min<std::uint64_t>(pieces, 32));
  for (auto& piece : lists.pieces) piece = {bytes.number(), bytes.number()};
}

std::vector<muster_face> any_faces(Bytes& bytes, muster_dtype dtype) {
  std::vector<muster_face> faces(bytes.below(kFacesMax));
  for (auto& face : faces) {
    face.peer = static_cast<std::int32_t>(bytes.below(6)) - 1;
    face.tag = static_cast<std::uint32_t>(bytes.below(4));
    face.view = any_view(bytes, dtype);
  }
  return faces;
}

void check_block(const std::byte* base, const Block& block, std::uint64_t element,
                 const muster_range& range) {
  if (block.count == 0) return;
  for (std::size_t i = 0; i < kBuffers; ++i) {
    if (rig().handles[i] != range.buffer) continue;
    const Wide begin = Wide{base - rig().data(i)} + static_cast<Wide>(block.offset) * element;
    MUSTER_PROMISE(begin >= 0 && begin + static_cast<Wide>(block.count) * element <= kBufferBytes[i]);
    return;
  }
  MUSTER_PROMISE(false && "a block lies in its buffer");
}

void check_face(const Face& face, muster_dtype dtype) {
  kernels::Tensor view;
  view.data = face.data;
  view.dtype = dtype;
  view.dims = face.dims;
  view.size = face.size;
  view.stride = face.stride;
  check_inside(view);
}

void check_collective(const scheduler::Plan& plan, const shm::PlanCollective& said, std::int32_t ranks) {
  const scheduler::CollectiveWork& work = *plan.collective();
  const muster_dtype dtype = work.collective.dtype;
  const std::uint64_t element = dtype_bytes(dtype);
  for (const Block& block : work.share.source_blocks)
    check_block(work.share.source, block, element, said.source);
  const bool has_target = work.share.target != nullptr;
  for (const Block& block : work.share.target_blocks)
    if (has_target) check_block(work.share.target, block, element, said.target);
  for (const Face& face : work.share.sends) check_face(face, dtype);
  for (const Face& face : work.share.receives) check_face(face, dtype);
  MUSTER_PROMISE(plan.bytes == got_count(work.share) * element);
  const Choice choice = choose(work.collective, ranks, Machine{2, 4, true});
  MUSTER_PROMISE(choice.why != nullptr && choice.predicted_ns >= 0.0);
  // Equal descriptions have equal signatures, and no difference.
  MUSTER_PROMISE(signature_of(work.collective, work.share, ranks) == work.signature);
  const bool alone = work.collective.op != MUSTER_EXCHANGE && !is_pairwise(work.collective.op) &&
                     !is_transfer(work.collective.op);
  if (!alone) return;
  const Party parties[] = {{0, &work.collective, &work.share, work.site},
                           {1, &work.collective, &work.share, ""}};
  MUSTER_PROMISE(difference(parties).empty());
}

void collective(Bytes& bytes) {
  shm::PlanCollective said;
  said.op = static_cast<std::int32_t>(bytes.below(14));
  said.dtype = static_cast<std::int32_t>(bytes.below(12));
  said.redop = static_cast<std::int32_t>(bytes.below(8));
  said.peer = static_cast<std::int32_t>(bytes.below(6)) - 1;
  const auto group = bytes.below(6);
  said.group = group < 3   ? Handle(static_cast<std::uint16_t>(group), kEpoch).bits
               : group < 5 ? MUSTER_GROUP_SELF
                           : bytes.take<std::uint64_t>();
  said.source = {any_buffer(bytes), bytes.flag() ? 0 : bytes.number()};
  said.target = {any_buffer(bytes), bytes.flag() ? 0 : bytes.number()};
  said.count = bytes.number();
  said.scale = bytes.flag() ? 2.0 : bytes.take<double>();
  const auto site = bytes.text(bytes.below(sizeof said.site + 1));
  std::copy(site.begin(), site.end(), said.site);
  CollectiveLists lists;
  lists.source_counts = any_list(bytes);
  lists.source_offsets = any_list(bytes);
  lists.target_counts = any_list(bytes);
  lists.target_offsets = any_list(bytes);
  lists.sends = any_faces(bytes, said.dtype);
  lists.receives = any_faces(bytes, said.dtype);
  if (bytes.below(4) == 1) {
    add_pieces(bytes, lists);
    if (bytes.below(8) != 1) {
      lists.source_counts = lists.source_offsets = lists.target_counts = lists.target_offsets = {};
      said.count = 0;
    }
  }
  const auto read = received(bytes, said, lists);
  if (!read) return;
  const auto plan = resolve_collective(rig().scope(), said, *read);
  if (!plan) {
    MUSTER_PROMISE(static_cast<int>(plan.error().code()) < 0 && !plan.error().message().empty());
    return;
  }
  const auto& members = rig().groups[(*plan)->collective()->group.value].ranks;
  check_collective(**plan, said, static_cast<std::int32_t>(members.size()));
}

}  // namespace
}  // namespace muster::engine

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  muster::fuzz::Bytes bytes(data, size);
  if (bytes.flag())
    muster::engine::kernel(bytes);
  else
    muster::engine::collective(bytes);
  return 0;
}
