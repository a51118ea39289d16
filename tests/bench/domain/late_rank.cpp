// A ring of ranks that exchange a halo every 15 ms: late_rank STEPS. In every tenth step rank 0 is 5 ms late.
// Each rank prints a line of JSON: how far it is from rank 0, and how late it ended such steps, and others.
// With STEPS 0 rank 0 kills itself while its neighbours wait for its halo. The others print when they heard.
#include <muster/halo.h>
#include <muster/kernels.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

void check(muster_status_t status) {
  if (status == MUSTER_OK) return;
  std::fprintf(stderr, "%s: %s\n", muster_status_name(status), muster_last_error());
  std::exit(1);
}

// A moment soon, the same at all ranks: those of a node have one clock.
Clock::time_point agreed_beginning(muster_session* session, muster_group world) {
  muster_buffer shared = 0;
  void* address = nullptr;
  check(muster_buffer_alloc(session, sizeof(std::int64_t), &shared, &address));
  auto* const begin = static_cast<std::int64_t*>(address);
  *begin = (Clock::now() + milliseconds(50)).time_since_epoch().count();
  muster_collective agree = MUSTER_COLLECTIVE_INIT;
  agree.op = MUSTER_BROADCAST;
  agree.group = world;
  agree.dtype = MUSTER_I64;
  agree.source.buffer = agree.target.buffer = shared;
  agree.count = 1;
  check(muster_run(session, &agree, 0));
  return Clock::time_point(Clock::duration(*begin));
}

// Eight rows of each rank, and one row of each neighbour; the first rank is the last one's.
muster_stencil* ring_of(int ranks) {
  muster_layout_options rows = MUSTER_LAYOUT_OPTIONS_INIT;
  rows.dims = 2;
  rows.shape[0] = 8 * ranks;
  rows.shape[1] = 256;
  rows.axis_count = 1;
  rows.axes[0].ranks = ranks;
  rows.axes[0].placement = MUSTER_SHARD;
  muster_layout* layout = nullptr;
  check(muster_layout_create(nullptr, &rows, &layout));
  const muster_window windows[2] = {muster_window_convolution(3, 1, 1, 1, 1, MUSTER_PAD_CIRCULAR),
                                    MUSTER_WINDOW_INIT};
  muster_stencil_options said = MUSTER_STENCIL_OPTIONS_INIT;
  said.layout = layout;
  said.windows = windows;
  muster_stencil* stencil = nullptr;
  check(muster_stencil_create(&said, &stencil));
  check(muster_layout_destroy(layout));
  return stencil;
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 200;
  muster_session* session = nullptr;
  check(muster_open(nullptr, &session));
  muster_session_info me = MUSTER_SESSION_INFO_INIT;
  check(muster_session_query(session, &me));
  muster_group world = 0;
  check(muster_mesh_group(session, "world", &world));
  muster_stencil* const stencil = ring_of(me.world_size);
  muster_halo_info part = MUSTER_HALO_INFO_INIT;
  check(muster_stencil_query(stencil, me.rank, MUSTER_CORNERS_DIRECT, &part));
  muster_buffer buffer = 0;
  check(muster_buffer_alloc(
      session, static_cast<std::uint64_t>(part.held.length[0] * part.held.length[1]) * 4, &buffer, nullptr));
  muster_halos_options set = MUSTER_HALOS_OPTIONS_INIT;
  set.group = world;
  muster_halos* halos = nullptr;
  check(muster_halos_create(session, &set, &halos));
  muster_halo_options place = MUSTER_HALO_OPTIONS_INIT;
  place.name = "ring";
  place.stencil = stencil;
  place.held = muster_view(buffer, 0, MUSTER_F32, 2, part.held.length);
  muster_halo halo = 0;
  check(muster_halo_create(halos, &place, &halo));
  const auto exchange = [&] {
    muster_point done = MUSTER_POINT_NONE;
    const muster_status_t started = muster_halo_forward(halos, halo, MUSTER_POINT_NONE, &done);
    return started == MUSTER_OK ? muster_point_wait(session, done, -1) : started;
  };
  const int distance = std::min(me.rank, me.world_size - me.rank);
  check(exchange());
  const Clock::time_point first = agreed_beginning(session, world);
  if (steps == 0) {
    const auto death = first + milliseconds(50);
    std::this_thread::sleep_until(me.rank == 0 ? death : first);
    if (me.rank == 0) std::raise(SIGKILL);
    while (exchange() == MUSTER_OK) continue;
    std::printf("{\"distance\": %d, \"heard_ms\": %.3f}\n", distance,
                std::chrono::duration<double, std::milli>(Clock::now() - death).count());
    return 0;
  }
  double late = 0.0, usual = 0.0;
  int lates = 0, usuals = 0;
  for (int step = 0; step < steps; ++step) {
    const auto due = first + step * milliseconds(15);
    const bool is_late = step % 10 == 9;
    std::this_thread::sleep_until(due + milliseconds(is_late && me.rank == 0 ? 5 : 0));
    check(exchange());
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - due).count();
    (is_late ? late : usual) += ms;
    ++(is_late ? lates : usuals);
  }
  muster_collective meet = MUSTER_COLLECTIVE_INIT;  // a rank that leaves would end what others wait for
  meet.op = MUSTER_BARRIER;
  meet.group = world;
  check(muster_run(session, &meet, 0));
  std::printf("{\"distance\": %d, \"late_ms\": %.3f, \"usual_ms\": %.3f}\n", distance,
              late / std::max(1, lates), usual / std::max(1, usuals));
  check(muster_halos_destroy(halos));
  check(muster_stencil_destroy(stencil));
  muster_close(session);
  return 0;
}
