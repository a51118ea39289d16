// Ranks that run, on one node or two: real supervisors, real engine processes, a thread of this process for
// each rank.
#pragma once

#include "tests/api/client/of_one_node.hpp"
#include "tests/support/nodes.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <muster/muster.h>

namespace muster::test {

// One rank of a running job, on its own thread. `session` is NULL once it has been closed.
struct Member {
  int rank = 0;
  int world = 0;
  muster_session* session = nullptr;
  muster_group group = 0;
  std::string error;  // the last one, as this thread saw it

  muster_status_t run(const muster_collective& c, std::int64_t timeout_ns = 0) {
    const muster_status_t status = muster_run(session, &c, timeout_ns);
    error = muster_last_error();
    return status;
  }
  muster_collective barrier() const {
    muster_collective c = MUSTER_COLLECTIVE_INIT;
    c.op = MUSTER_BARRIER;
    c.group = group;
    return c;
  }
};

struct Vector {
  muster_buffer buffer = 0;
  float* data = nullptr;
};

class RunningRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* why = node_.several() ? why_of_one_node() : nullptr) GTEST_SKIP() << why;
    node_.start();
  }

  // Opens a session for each rank, runs `body` on a thread of its own for each, and closes what is left open.
  void with_ranks(int world, const std::function<void(Member&)>& body) {
    std::vector<std::thread> threads;
    std::atomic<int> opened{0};
    here_ = 0;
    for (int rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank] {
        Member member = open(rank, world);
        ++opened;
        while (opened < world) std::this_thread::yield();
        body(member);
        EXPECT_EQ(muster_close(member.session), MUSTER_OK);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Until it is so, or the test has failed: whoever would have made it so may be gone then.
  template<class So>
  static void await(So so) {
    while (!so() && !HasFailure()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Until all of with_ranks() have come here: what ends a group for all ends an operation for whoever is
  // still in it, and so may a departure of which others have heard.
  void await_all(const Member& member) {
    const int mine = here_++;
    const int all = (mine / member.world + 1) * member.world;
    await([&] { return here_ >= all; });
  }
  // A barrier from which all have come back before anybody goes on.
  void meet_and_leave(Member& member) {
    ASSERT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
    await_all(member);
  }

  Member open(int rank, int world) {
    Member member;
    member.rank = rank;
    member.world = world;
    const std::string shape = mesh.empty() ? "dp_shard=" + std::to_string(world) : mesh;
    const std::string job = "job-of-" + std::to_string(world);
    const muster_open_options options = node_.rank(job.c_str(), rank, world, shape.c_str());
    EXPECT_EQ(muster_open(&options, &member.session), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(muster_mesh_group(member.session, "world", &member.group), MUSTER_OK) << muster_last_error();
    return member;
  }

  static Vector vector_of(const Member& member, std::size_t count) {
    Vector v;
    void* address = nullptr;
    EXPECT_EQ(muster_buffer_alloc(member.session, count * sizeof(float), &v.buffer, &address), MUSTER_OK)
        << muster_last_error();
    v.data = static_cast<float*>(address);
    return v;
  }

  // Over all ranks, from the start of one vector to the start of another; without counts.
  static muster_collective collective(const Member& member, muster_op op, const Vector& source,
                                      const Vector& target) {
    muster_collective c = MUSTER_COLLECTIVE_INIT;
    c.op = op;
    c.group = member.group;
    c.dtype = MUSTER_F32;
    c.source = {source.buffer, 0};
    c.target = {target.buffer, 0};
    return c;
  }
  static muster_collective all_reduce(const Member& member, const Vector& source, const Vector& target,
                                      std::uint64_t count) {
    muster_collective c = collective(member, MUSTER_ALL_REDUCE, source, target);
    c.redop = MUSTER_SUM;
    c.count = count;
    return c;
  }
  static muster_plan plan_of(const Member& member, const muster_collective& c) {
    muster_plan plan = 0;
    EXPECT_EQ(muster_plan_collective(member.session, &c, &plan), MUSTER_OK) << muster_last_error();
    return plan;
  }

  std::string mesh;  // of jobs to come; empty: one dim
  muster::test::Nodes node_;

 private:
  std::atomic<int> here_{0};  // how often somebody came to await_all()
};

}  // namespace muster::test
