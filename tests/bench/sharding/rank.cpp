#include "tests/bench/sharding/rank.hpp"

#include <cstdio>
#include <cstdlib>

namespace muster::bench::sharding {

void must(muster_status_t status, const char* what) {
  if (status == MUSTER_OK) return;
  std::fprintf(stderr, "sharding_rank: %s: %s: %s\n", what, muster_status_name(status), muster_last_error());
  std::exit(EXIT_FAILURE);
}

Rank::Rank() {
  muster_session* session = nullptr;
  must(muster_open(nullptr, &session), "muster_open");
  session_.reset(session);
  must(muster_session_query(session, &info_), "muster_session_query");
  must(muster_mesh_group(session, "world", &world_), "muster_mesh_group");
  number_ = allocate(sizeof(double));
}

Memory Rank::allocate(std::uint64_t bytes) {
  Memory memory;
  must(muster_buffer_alloc(session(), bytes, &memory.buffer, &memory.address), "muster_buffer_alloc");
  return memory;
}

muster_plan Rank::plan(const muster_kernel& kernel) {
  muster_plan plan = 0;
  must(muster_plan_kernel(session(), &kernel, &plan), "muster_plan_kernel");
  return plan;
}

muster_plan Rank::plan(const muster_collective& collective) {
  muster_plan plan = 0;
  must(muster_plan_collective(session(), &collective, &plan), "muster_plan_collective");
  return plan;
}

muster_point Rank::start(muster_plan plan, muster_lane lane, std::span<const muster_point> waits) {
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = lane;
  for (const muster_point point : waits)
    if (point != MUSTER_POINT_NONE) submit.waits[submit.wait_count++] = point;
  muster_status_t status = muster_plan_start(session(), plan, &submit, &newest_);
  if (status == MUSTER_ERR_BUSY && newest_ != MUSTER_POINT_NONE) {
    wait(newest_);
    status = muster_plan_start(session(), plan, &submit, &newest_);
  }
  must(status, "muster_plan_start");
  return newest_;
}

void Rank::wait(muster_point point) {
  if (point != MUSTER_POINT_NONE) must(muster_point_wait(session(), point, -1), "muster_point_wait");
}

void Rank::meet() {
  if (ranks() > 1) must(muster_barrier(session(), world_), "muster_barrier");
}

double Rank::largest(double mine) {
  if (ranks() == 1) return mine;
  auto* number = static_cast<double*>(number_.address);
  *number = mine;
  muster_collective agree = MUSTER_COLLECTIVE_INIT;
  agree.op = MUSTER_ALL_REDUCE;
  agree.redop = MUSTER_MAX;
  agree.group = world_;
  agree.dtype = MUSTER_F64;
  agree.count = 1;
  agree.source = agree.target = {number_.buffer, 0};
  must(muster_run(session(), &agree, 0), "muster_run");
  return *number;
}

}  // namespace muster::bench::sharding
