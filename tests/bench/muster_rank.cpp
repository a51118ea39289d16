#include "tests/bench/muster_rank.hpp"

#include "tests/bench/muster_alone.hpp"
#include "tests/bench/sweep.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <utility>

#include <muster/kernels.h>

namespace muster::bench {
namespace {

// A unit of work is a product of two small matrices: about a tenth of a millisecond on one core.
constexpr std::int64_t kRows = 128;
constexpr std::int64_t kColumns = 256;
constexpr std::int64_t kInner = 256;

muster_op op_of(Operation operation) {
  switch (operation) {
    case Operation::kAllGather:
    case Operation::kAllGatherShared:
    case Operation::kAllGatherV:
      return MUSTER_ALL_GATHER;
    case Operation::kReduceScatter:
    case Operation::kReduceScatterV:
      return MUSTER_REDUCE_SCATTER;
    case Operation::kBroadcast:
      return MUSTER_BROADCAST;
    case Operation::kReduce:
      return MUSTER_REDUCE;
    case Operation::kGather:
    case Operation::kGatherV:
      return MUSTER_GATHER;
    case Operation::kScatter:
    case Operation::kScatterV:
      return MUSTER_SCATTER;
    case Operation::kAllToAll:
    case Operation::kAllToAllV:
      return MUSTER_ALL_TO_ALL;
    default:
      return MUSTER_ALL_REDUCE;
  }
}

bool reduces(muster_op op) {
  return op == MUSTER_ALL_REDUCE || op == MUSTER_REDUCE_SCATTER || op == MUSTER_REDUCE;
}

muster_lane lane_of(muster_op op) {
  if (op == MUSTER_ALL_REDUCE) return MUSTER_LANE_ALLREDUCE;
  return reduces(op) ? MUSTER_LANE_REDUCE : MUSTER_LANE_GATHER;
}

bool is_uneven(Operation operation) {
  switch (operation) {
    case Operation::kAllGatherV:
    case Operation::kReduceScatterV:
    case Operation::kGatherV:
    case Operation::kScatterV:
    case Operation::kAllToAllV:
      return true;
    default:
      return false;
  }
}

muster_face face_of(int peer, unsigned tag, const Memory& memory, std::size_t begin, std::size_t count) {
  return {peer, tag,
          muster_view1(memory.buffer, begin * sizeof(float), MUSTER_F32, static_cast<std::int64_t>(count))};
}

}  // namespace

void must(muster_status_t status, const char* what) {
  if (status == MUSTER_OK) return;
  std::fprintf(stderr, "muster: %s: %s: %s\n", what, muster_status_name(status), muster_last_error());
  std::exit(EXIT_FAILURE);
}

MusterRank::MusterRank(const std::string& path) : direct_(path == "direct") {
  must(muster_open(nullptr, &session_), "muster_open");
  muster_session_info info = MUSTER_SESSION_INFO_INIT;
  must(muster_session_query(session_, &info), "muster_session_query");
  rank_ = info.rank;
  ranks_ = info.world_size;
  must(muster_mesh_group(session_, "world", &group_), "muster_mesh_group");
  grow(number_, sizeof(double));
  muster_collective agree = collective(MUSTER_ALL_REDUCE, MUSTER_F64, MUSTER_MAX);
  agree.source = agree.target = {number_.buffer, 0};
  agree.count = 1;
  must(muster_plan_collective(session_, &agree, &agree_), "the plan of a maximum");
  const muster_collective meet = collective(MUSTER_BARRIER, 0, 0);
  must(muster_plan_collective(session_, &meet, &meet_), "the plan of a barrier");
}

MusterRank::~MusterRank() {
  muster_close(session_);
}

std::string MusterRank::version() const {
  const std::uint32_t number = muster_version();
  return std::to_string(number >> 16) + "." + std::to_string(number >> 8 & 0xff) + "." +
         std::to_string(number & 0xff);
}

double MusterRank::maximum(double mine) {
  auto* number = static_cast<double*>(number_.address);
  *number = mine;
  finish(agree_, MUSTER_LANE_SMALL);
  return *number;
}

bool MusterRank::make_group() {
  std::vector<std::int32_t> members(static_cast<std::size_t>(ranks_));
  std::iota(members.begin(), members.end(), 0);
  must(muster_group_make(session_, members.data(), members.size(), "bench", &made_), "muster_group_make");
  return true;
}

void MusterRank::forget_group() {
  must(muster_group_free(session_, made_), "muster_group_free");
}

Prepared MusterRank::prepare(const Shape& shape) {
  forget_plans();
  grow(source_, shape.source * sizeof(float));
  grow(target_, shape.target * sizeof(float));
  if (shape.operation == Operation::kSendRecv) return prepare_ping_pong(shape);
  if (shape.operation == Operation::kHalo) return prepare_exchange(shape);
  const muster_collective what = collective_of(shape);
  const muster_plan plan = plan_of(what, name_of(shape.operation));
  Prepared prepared = prepared_of(shape);
  prepared.run = [this, plan, lane = lane_of(what.op)] { finish(plan, lane); };
  return prepared;
}

// One buffer of all ranks, in which each one's shard lies where it belongs.
std::optional<Prepared> MusterRank::prepare_shared(const Shape& shape) {
  forget_plans();
  if (shared_.buffer != 0) must(muster_buffer_free(session_, shared_.buffer), "muster_buffer_free");
  const std::string name = "gathered-" + std::to_string(shape.bytes());
  muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
  options.bytes = shape.target * sizeof(float);
  options.name = name.c_str();
  options.shared_by = group_;
  must(muster_buffer_create(session_, &options, &shared_.buffer, &shared_.address), "muster_buffer_create");
  const std::size_t begin = offsets_of(shape.target_blocks)[static_cast<std::size_t>(rank_)];
  muster_collective what = collective(MUSTER_ALL_GATHER, MUSTER_F32, 0);
  what.count = shape.source;
  what.source = {shared_.buffer, begin * sizeof(float)};
  what.target = {shared_.buffer, 0};
  const muster_plan plan = plan_of(what, name_of(shape.operation));
  auto* target = static_cast<float*>(shared_.address);
  return Prepared{{target + begin, shape.source},
                  {target, shape.target},
                  [this, plan] { finish(plan, MUSTER_LANE_GATHER); },
                  {},
                  true};
}

std::optional<Overlap> MusterRank::prepare_overlap(std::size_t bytes) {
  if (direct_) return std::nullopt;  // its caller waits
  const Prepared prepared = prepare(shape_of(Operation::kAllReduce, bytes, rank_, ranks_));
  const std::uint64_t inputs = (kRows + kColumns) * kInner * sizeof(float);
  grow(work_, inputs + kRows * kColumns * sizeof(float));
  const muster_kernel product = muster_linear_forward(
      muster_view2(work_.buffer, 0, MUSTER_F32, kRows, kInner),
      muster_view2(work_.buffer, kRows * kInner * sizeof(float), MUSTER_F32, kColumns, kInner), muster_none(),
      muster_view2(work_.buffer, inputs, MUSTER_F32, kRows, kColumns));
  muster_plan work = 0;
  must(muster_plan_kernel(session_, &product, &work), "muster_plan_kernel");
  const muster_plan all_reduce = plans_.front();
  plans_.push_back(work);
  const auto begin_work = [this, work](int units) {
    muster_point last = MUSTER_POINT_NONE;
    for (int unit = 0; unit < units; ++unit) last = start(work, MUSTER_LANE_COMPUTE);
    return last;
  };
  const auto both = [this, all_reduce, begin_work](int units) {
    const muster_point reduced = start(all_reduce, MUSTER_LANE_ALLREDUCE);
    wait(begin_work(units));
    wait(reduced);
  };
  return Overlap{prepared.run, [this, begin_work](int units) { wait(begin_work(units)); }, both};
}

muster_plan MusterRank::prepare_kernel() {
  forget_plans();
  grow(target_, sizeof(float));
  const muster_kernel fill = muster_fill(muster_view1(target_.buffer, 0, MUSTER_F32, 1), 1.0);
  muster_plan plan = 0;
  must(muster_plan_kernel(session_, &fill, &plan), "muster_plan_kernel");
  plans_.push_back(plan);
  return plan;
}

muster_point MusterRank::start(muster_plan plan, muster_lane lane) {
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = lane;
  muster_point point = MUSTER_POINT_NONE;
  must(muster_plan_start(session_, plan, &submit, &point), "muster_plan_start");
  return point;
}

muster_collective MusterRank::collective(muster_op op, muster_dtype dtype, muster_redop redop) const {
  muster_collective what = MUSTER_COLLECTIVE_INIT;
  what.op = op;
  what.group = group_;
  what.dtype = dtype;
  what.redop = redop;
  return what;
}

// Blocks of one length are said by `count` alone. A list of counts is copied by the plan; where only the root
// has one, `count` is the own block.
muster_collective MusterRank::collective_of(const Shape& shape) const {
  const muster_op op = op_of(shape.operation);
  muster_collective what = collective(op, MUSTER_F32, reduces(op) ? MUSTER_SUM : 0);
  what.peer = kRoot;
  if (shape.source > 0) what.source = {source_.buffer, 0};
  if (shape.target > 0) what.target = {target_.buffer, 0};
  static_assert(sizeof(std::size_t) == sizeof(std::uint64_t));
  if (is_uneven(shape.operation)) {
    if (!shape.source_blocks.empty()) what.source_blocks.counts = shape.source_blocks.data();
    if (!shape.target_blocks.empty()) what.target_blocks.counts = shape.target_blocks.data();
    if (op == MUSTER_GATHER) what.count = shape.source;
    if (op == MUSTER_SCATTER) what.count = shape.target;
    return what;
  }
  switch (op) {
    case MUSTER_ALL_GATHER:
    case MUSTER_GATHER:
      what.count = shape.source;
      break;
    case MUSTER_REDUCE_SCATTER:
    case MUSTER_SCATTER:
      what.count = shape.target;
      break;
    case MUSTER_ALL_TO_ALL:
      what.count = shape.source_blocks.front();
      break;
    default:
      what.count = shape.total;
  }
  return what;
}

muster_plan MusterRank::plan_of(const muster_collective& what, const char* name) {
  muster_plan plan = 0;
  must(muster_plan_collective(session_, &what, &plan), name);
  plans_.push_back(plan);
  return plan;
}

Prepared MusterRank::prepared_of(const Shape& shape) {
  return {{static_cast<float*>(source_.address), shape.source},
          {static_cast<float*>(target_.address), shape.target},
          {},
          {},
          false};
}

Prepared MusterRank::prepare_ping_pong(const Shape& shape) {
  Prepared prepared = prepared_of(shape);
  const int partner = partner_of(rank_, ranks_);
  if (partner < 0) {
    prepared.run = [] {};
    return prepared;
  }
  muster_collective what = collective(MUSTER_SEND, MUSTER_F32, 0);
  what.peer = partner;
  what.count = shape.total;
  what.source = {source_.buffer, 0};
  const muster_plan send = plan_of(what, "send");
  what.op = MUSTER_RECV;
  what.source = {};
  what.target = {target_.buffer, 0};
  const muster_plan receive = plan_of(what, "recv");
  const bool first = rank_ < partner;
  prepared.run = [this, one = first ? send : receive, other = first ? receive : send] {
    finish(one, MUSTER_LANE_HALO);
    finish(other, MUSTER_LANE_HALO);
  };
  return prepared;
}

// The tag is the side of the sender on which the face lies.
Prepared MusterRank::prepare_exchange(const Shape& shape) {
  constexpr unsigned kLeft = 1;
  constexpr unsigned kRight = 2;
  const std::size_t face = shape.source_blocks.front();
  const int left = (rank_ + ranks_ - 1) % ranks_;
  const int right = (rank_ + 1) % ranks_;
  const std::array sends = {face_of(left, kLeft, source_, 0, face),
                            face_of(right, kRight, source_, face, face)};
  const std::array receives = {face_of(left, kRight, target_, 0, face),
                               face_of(right, kLeft, target_, face, face)};
  muster_collective what = collective(MUSTER_EXCHANGE, MUSTER_F32, 0);
  what.sends = sends.data();
  what.receives = receives.data();
  what.send_count = static_cast<std::uint32_t>(sends.size());
  what.receive_count = static_cast<std::uint32_t>(receives.size());
  const muster_plan plan = plan_of(what, "halo");
  Prepared prepared = prepared_of(shape);
  prepared.run = [this, plan] { finish(plan, MUSTER_LANE_HALO); };
  return prepared;
}

void MusterRank::finish(muster_plan plan, muster_lane lane) {
  if (direct_) {
    must(muster_plan_run(session_, plan, 0), "muster_plan_run");
  } else {
    wait(start(plan, lane));
  }
}

void MusterRank::grow(Memory& memory, std::size_t bytes) {
  if (memory.bytes >= bytes) return;
  if (memory.buffer != 0) must(muster_buffer_free(session_, memory.buffer), "muster_buffer_free");
  must(muster_buffer_alloc(session_, bytes, &memory.buffer, &memory.address), "muster_buffer_alloc");
  memory.bytes = bytes;
}

void MusterRank::forget_plans() {
  for (const muster_plan plan : std::exchange(plans_, {}))
    must(muster_plan_destroy(session_, plan), "muster_plan_destroy");
}

int run_muster_rank(const Cells& cells) {
  MusterRank rank(cells.path);
  const bool all_right = sweep(rank, cells);
  if (rank.ranks() == 1) measure_alone(rank, cells);
  return all_right ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace muster::bench
