// A rank that comes to a group after a fault hears of it by its first operation, as the others did by theirs.
// From then on each operation meets the one that it was meant for.
#include "tests/api/client/session_fixture.hpp"

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <muster/kernels.h>

namespace muster::test {
namespace {

enum class Fault { kDeadline, kAbort, kInterrupt, kLoss, kMismatch };
constexpr Fault kFaults[] = {Fault::kDeadline, Fault::kAbort, Fault::kInterrupt, Fault::kLoss,
                             Fault::kMismatch};
enum class Way { kRun, kStart };
enum class Comes { kBefore, kAfter };

constexpr int kWorld = 3;
constexpr int kLate = 2;  // on the second node, if there are two
constexpr std::uint64_t kCount = 100;
constexpr std::int64_t kSoonNs = 300'000'000;
constexpr std::int64_t kPatienceNs = 20'000'000'000;

std::string name_of(Fault fault) {
  switch (fault) {
    case Fault::kDeadline:
      return "deadline";
    case Fault::kAbort:
      return "abort";
    case Fault::kInterrupt:
      return "interrupt";
    case Fault::kLoss:
      return "loss";
    case Fault::kMismatch:
      return "mismatch";
  }
  return "";
}

class LateRanksCalls : public Session {
 protected:
  struct Member {
    muster_session* session = nullptr;
    muster_group world = 0;
    Vector vector;
  };
  Member member(int rank, int world = kWorld, const char* mesh = nullptr, const char* dim = "world") {
    Member m;
    m.session = open(rank, world, "job", mesh);
    m.world = group_of(m.session, dim);
    m.vector = vector_of(m.session, kCount);
    return m;
  }
  // Operation 1 and 2 are barriers, so that one too many or too few is seen; the others sum 2^rank.
  static muster_status_t operate(const Member& m, int rank, int number, Way way,
                                 std::int64_t deadline = kPatienceNs, std::uint64_t count = kCount) {
    muster_collective c = all_reduce(m.world, m.vector, count);
    if (number == 1 || number == 2) {
      c = MUSTER_COLLECTIVE_INIT;
      c.op = MUSTER_BARRIER;
      c.group = m.world;
    } else {
      std::fill_n(m.vector.data, kCount, static_cast<float>(1 << rank));
    }
    if (way == Way::kRun) return muster_run(m.session, &c, deadline);
    muster_submit submit = on(MUSTER_LANE_SMALL);
    submit.deadline_ns = deadline;
    muster_point point;
    if (const muster_status_t status = muster_collect(m.session, &c, &submit, &point)) return status;
    const muster_status_t status = muster_point_wait(m.session, point, -1);
    if (status != MUSTER_OK) reset(m.session);
    return status;
  }
  // BUSY: another node's engine may still write for the operation.
  static void reset(muster_session* session) {
    muster_status_t status = MUSTER_ERR_BUSY;
    for (int turn = 0; status == MUSTER_ERR_BUSY && turn < 2000; ++turn) {
      status = muster_lane_reset(session, MUSTER_LANE_SMALL);
      if (status == MUSTER_ERR_BUSY) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(status, MUSTER_OK) << muster_last_error();
  }
  static void all_goes_well(const Member& m, int rank, Way way, float sum = 7) {
    for (int number = 1; number <= 4; ++number) {
      EXPECT_EQ(operate(m, rank, number, way), MUSTER_OK)
          << "rank " << rank << ", operation " << number << ": " << muster_last_error();
      if (number < 3) continue;
      for (std::uint64_t i = 0; i < kCount; ++i) ASSERT_EQ(m.vector.data[i], sum) << number;
    }
  }
  // Once the engine has run a kernel of the rank, it has taken in all that the rank has heard of before. A
  // fault that comes earlier is one with what the rank hears.
  static void be_taken_in(const Member& m) {
    const muster_kernel kernel = muster_fill(muster_view1(m.vector.buffer, 0, MUSTER_F32, 1), 0);
    muster_submit submit = on(MUSTER_LANE_COMPUTE);
    muster_point point = MUSTER_POINT_NONE;
    EXPECT_EQ(muster_launch(m.session, &kernel, &submit, &point), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(muster_point_wait(m.session, point, -1), MUSTER_OK) << muster_last_error();
  }
  static void at_once(std::vector<std::function<void()>> bodies) {
    std::vector<std::thread> threads;
    for (auto& body : bodies) threads.emplace_back(std::move(body));
    for (std::thread& thread : threads) thread.join();
  }
};

class LateRanks : public LateRanksCalls,
                  public ::testing::WithParamInterface<std::tuple<Fault, Way, Comes>> {};

TEST_P(LateRanks, HearOfTheFaultAndThenMeetTheOthers) {
  const auto [fault, way, comes] = GetParam();
  std::vector<Member> members(kWorld);
  for (int rank = 0; rank < kWorld; ++rank)
    if (rank != kLate || comes == Comes::kBefore) members[static_cast<std::size_t>(rank)] = member(rank);
  Member& late = members[kLate];
  const muster_status_t code = fault == Fault::kDeadline   ? MUSTER_ERR_TIMEOUT
                               : fault == Fault::kLoss     ? MUSTER_ERR_PEER_LOST
                               : fault == Fault::kMismatch ? MUSTER_ERR_MISMATCH
                                                           : MUSTER_ERR_ABORTED;
  // A mismatch is found once all ranks of a node have come; on one node that is the late one too.
  const bool all_meet = fault == Fault::kMismatch && !node_.several();
  const auto fails = [&, fault = fault, way = way](int rank) {
    const Member& m = members[static_cast<std::size_t>(rank)];
    muster_status_t wanted = code;
    if (fault == Fault::kAbort && rank == 0) {
      EXPECT_EQ(muster_group_abort(m.session, m.world), MUSTER_OK);
    }
    if (fault == Fault::kInterrupt && rank == 0) {
      EXPECT_EQ(muster_interrupt(m.session), MUSTER_OK);
      wanted = MUSTER_ERR_INTERRUPTED;
    }
    const std::int64_t deadline = fault == Fault::kDeadline && rank != kLate ? kSoonNs : kPatienceNs;
    const std::uint64_t count = fault == Fault::kMismatch && rank == 1 ? kCount - 1 : kCount;
    EXPECT_EQ(operate(m, rank, 0, way, deadline, count), wanted) << "rank " << rank << muster_last_error();
  };
  const auto first = [&] { fails(0); };
  const auto second = [&, fault = fault] {
    if (fault != Fault::kLoss) return fails(1);
    close(members[1].session);
  };
  const auto third = [&, comes = comes] {
    if (comes == Comes::kAfter) late = member(kLate);
    fails(kLate);
  };
  if (all_meet) {
    at_once({first, second, third});
  } else {
    at_once({first, second});
    if (fault == Fault::kLoss)
      members[1] = member(1);  // comes back, and goes on behind the operation that failed
    third();
  }
  std::vector<std::function<void()>> rest;
  for (int rank = 0; rank < kWorld; ++rank)
    rest.emplace_back(
        [&, rank, way = way] { all_goes_well(members[static_cast<std::size_t>(rank)], rank, way); });
  at_once(std::move(rest));
}

// An interrupt ends a run; an operation that was started goes on.
std::vector<LateRanks::ParamType> cases() {
  std::vector<LateRanks::ParamType> all;
  for (const Fault fault : kFaults)
    for (const Way way : {Way::kRun, Way::kStart})
      for (const Comes comes : {Comes::kBefore, Comes::kAfter})
        if (fault != Fault::kInterrupt || way == Way::kRun) all.emplace_back(fault, way, comes);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Faults, LateRanks, ::testing::ValuesIn(cases()), [](const auto& info) {
  return fmt::format("{}_{}_{}", name_of(std::get<0>(info.param)),
                     std::get<1>(info.param) == Way::kRun ? "run" : "start",
                     std::get<2>(info.param) == Comes::kBefore ? "before" : "after");
});

// Goal:   a rank that comes after several faults of different kinds hears each, in their order.
TEST_F(LateRanksCalls, HearEachFaultInItsOrder) {
  for (const Way way : {Way::kRun, Way::kStart}) {
    std::vector<Member> members{member(0), member(1)};
    const auto fails = [&](int rank, std::int64_t deadline, muster_status_t wanted) {
      const Member& m = members[static_cast<std::size_t>(rank)];
      EXPECT_EQ(operate(m, rank, 0, way, deadline), wanted) << "rank " << rank << muster_last_error();
      be_taken_in(m);
    };
    EXPECT_EQ(muster_group_abort(members[0].session, members[0].world), MUSTER_OK);
    at_once({[&] { fails(0, kPatienceNs, MUSTER_ERR_ABORTED); },
             [&] { fails(1, kPatienceNs, MUSTER_ERR_ABORTED); }});
    at_once({[&] { fails(0, kSoonNs, MUSTER_ERR_TIMEOUT); }, [&] { fails(1, kSoonNs, MUSTER_ERR_TIMEOUT); }});
    EXPECT_EQ(muster_group_abort(members[1].session, members[1].world), MUSTER_OK);
    at_once({[&] { fails(0, kPatienceNs, MUSTER_ERR_ABORTED); },
             [&] { fails(1, kPatienceNs, MUSTER_ERR_ABORTED); }});
    members.push_back(member(kLate));
    for (const muster_status_t wanted : {MUSTER_ERR_ABORTED, MUSTER_ERR_TIMEOUT, MUSTER_ERR_ABORTED})
      fails(kLate, kPatienceNs, wanted);
    std::vector<std::function<void()>> rest;
    for (int rank = 0; rank < kWorld; ++rank)
      rest.emplace_back([&, rank] { all_goes_well(members[static_cast<std::size_t>(rank)], rank, way); });
    at_once(std::move(rest));
    while (!open_.empty()) close(open_.back());
  }
}

// Goal:   ranks that come one after another each hear of what was before them, and of no more.
TEST_F(LateRanksCalls, HearOfWhatWasBeforeEachOfThem) {
  constexpr int kFour = 4;
  for (const Way way : {Way::kRun, Way::kStart}) {
    std::vector<Member> members{member(0, kFour), member(1, kFour)};
    const auto fails = [&](int rank) {
      EXPECT_EQ(operate(members[static_cast<std::size_t>(rank)], rank, 0, way), MUSTER_ERR_ABORTED)
          << "rank " << rank << muster_last_error();
      be_taken_in(members[static_cast<std::size_t>(rank)]);
    };
    EXPECT_EQ(muster_group_abort(members[0].session, members[0].world), MUSTER_OK);
    at_once({[&] { fails(0); }, [&] { fails(1); }});
    members.push_back(member(2, kFour));
    fails(2);
    EXPECT_EQ(muster_group_abort(members[2].session, members[2].world), MUSTER_OK);
    at_once({[&] { fails(0); }, [&] { fails(1); }, [&] { fails(2); }});
    members.push_back(member(3, kFour));
    fails(3);
    fails(3);
    std::vector<std::function<void()>> rest;
    for (int rank = 0; rank < kFour; ++rank)
      rest.emplace_back([&, rank] { all_goes_well(members[static_cast<std::size_t>(rank)], rank, way, 15); });
    at_once(std::move(rest));
    while (!open_.empty()) close(open_.back());
  }
}

// Goal:   a group of the mesh that ended before its second half came, and one of which nothing ended.
TEST_F(LateRanksCalls, HearOfTheGroupThatEndedAndOfNoOther) {
  constexpr const char* kMesh = "dp_shard=2,tp=2";
  for (const Way way : {Way::kRun, Way::kStart}) {
    const Member first = member(0, 4, kMesh, "tp");
    const Member other = member(2, 4, kMesh, "tp");
    EXPECT_EQ(muster_group_abort(first.session, first.world), MUSTER_OK);
    EXPECT_EQ(operate(first, 0, 0, way), MUSTER_ERR_ABORTED);
    const Member late = member(1, 4, kMesh, "tp");
    const Member late_other = member(3, 4, kMesh, "tp");
    EXPECT_EQ(operate(late, 1, 0, way), MUSTER_ERR_ABORTED) << muster_last_error();
    at_once({[&] { all_goes_well(first, 0, way, 3); }, [&] { all_goes_well(late, 1, way, 3); },
             [&] { all_goes_well(other, 2, way, 12); }, [&] { all_goes_well(late_other, 3, way, 12); }});
    while (!open_.empty()) close(open_.back());
  }
}

// Goal:   by whatever its first operation is: bytes of any length, and a comparison.
TEST_F(LateRanksCalls, HearByObjectsAndComparisonsToo) {
  const std::string text = "a state";
  for (const bool compares : {true, false}) {
    const auto first = [&](const Member& m) {
      const muster_tensor view{m.vector.buffer, 0, MUSTER_F32, 1, {4}, {1}};
      const void* bytes = nullptr;
      std::uint64_t offsets[kWorld + 1] = {};
      std::fill_n(m.vector.data, 4, 1.0f);
      return compares
                 ? muster_compare(m.session, m.world, &view, 1, kPatienceNs)
                 : muster_object_gather(m.session, m.world, -1, text.data(), text.size(), &bytes, offsets);
    };
    std::vector<Member> members{member(0), member(1)};
    EXPECT_EQ(muster_group_abort(members[0].session, members[0].world), MUSTER_OK);
    at_once({[&] { EXPECT_EQ(first(members[0]), MUSTER_ERR_ABORTED); },
             [&] { EXPECT_EQ(first(members[1]), MUSTER_ERR_ABORTED); }});
    members.push_back(member(kLate));
    EXPECT_EQ(first(members[kLate]), MUSTER_ERR_ABORTED) << muster_last_error();
    std::vector<std::function<void()>> rest;
    for (int rank = 0; rank < kWorld; ++rank)
      rest.emplace_back([&, rank] {
        const Member& m = members[static_cast<std::size_t>(rank)];
        EXPECT_EQ(first(m), MUSTER_OK) << muster_last_error();
        all_goes_well(m, rank, Way::kRun);
      });
    at_once(std::move(rest));
    while (!open_.empty()) close(open_.back());
  }
}

// Goal:   the cause that ended a run does not affect the next run, not even for ranks that had never come.
TEST_F(Session, OfANewRunHearNothingOfTheOldOne) {
  constexpr int kRanks = 4;
  for (int rank : {0, 3}) {
    muster_session* session = open(rank, kRanks);
    EXPECT_EQ(muster_group_abort(session, group_of(session, "world")), MUSTER_OK);
  }
  while (!open_.empty()) close(open_.back());
  std::vector<muster_session*> sessions = open_all(kRanks);
  std::vector<std::thread> threads;
  for (muster_session* session : sessions)
    threads.emplace_back([session] {
      muster_collective barrier = MUSTER_COLLECTIVE_INIT;
      barrier.op = MUSTER_BARRIER;
      barrier.group = group_of(session, "world");
      EXPECT_EQ(muster_run(session, &barrier, kPatienceNs), MUSTER_OK) << muster_last_error();
      muster_submit submit = on(MUSTER_LANE_SMALL);
      muster_point point;
      EXPECT_EQ(muster_collect(session, &barrier, &submit, &point), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(muster_point_wait(session, point, -1), MUSTER_OK) << muster_last_error();
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace muster::test
