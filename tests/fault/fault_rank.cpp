// A rank of a job in which one rank dies, stops or is frozen at a fault point:
// fault_rank ENDPOINT JOB RANK WORLD VICTIM STEP...
//
// Prints "attached", and waits for a byte on standard input, as it does once more in some steps. Then all
// ranks do the same steps, check every result, and meet once more on both paths. Then the victim leaves, and
// the others run until they hear of it. Prints one line at the end:
//
//   lost STEP STATUS CALLED HEARD TEXT     a step failed as no such step may: exits with 42
//   parted STATUS CALLED HEARD TEXT        all steps were right, and the victim has left: exits with 0
//   left                                   the same, by the victim
//   wrong STEP                             a result is wrong: exits with 3
//
// The step share:COUNT is for a job with digests: so many all-reduces, or until members find that they have
// other results. Then it prints "corrupt RUN TEXT", RUN counting from 1, and makes sure that the group goes
// on. The step mixed:COUNT is so many runs of all kinds whose result all members share, of any values.
//
// CALLED and HEARD are nanoseconds: when the failed operation was called for, and when its end was known.
#include <muster/muster.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

constexpr std::uint64_t kTarget = 1 << 20;  // byte of the buffer at which results lie
constexpr std::uint64_t kBufferBytes = 2 << 20;
constexpr useconds_t kLateUs = 100'000;  // a quarter of it is longer than anybody looks before it sleeps
constexpr std::int64_t kPatienceNs = 20'000'000'000;  // nobody sleeps soon on a busy machine
constexpr std::int64_t kHurryNs = 50'000'000;
constexpr std::int64_t kSoonNs = 500'000'000;
constexpr useconds_t kVeryLateUs = 400'000;  // long after kHurryNs

long long now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

class Rank {
 public:
  Rank(const char* endpoint, const char* job, int rank, int world, int victim)
      : rank_(rank), world_(world), victim_(victim) {
    muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
    options.endpoint = endpoint;
    options.job = job;
    options.rank = rank;
    options.world_size = world;
    begin("open");
    expect(muster_open(&options, &session_));
    expect(muster_mesh_group(session_, "world", &group_));
    void* address = nullptr;
    expect(muster_buffer_alloc(session_, kBufferBytes, &buffer_, &address));
    source_ = static_cast<float*>(address);
    target_ = source_ + kTarget / sizeof(float);
    std::printf("attached\n");
    std::fflush(stdout);
    await_go();
  }

  void step(const std::string& name) {
    begin(name);
    if (name == "inline") all_reduce(2);
    if (name == "slot") all_reduce(256);
    if (name == "stage")
      for (int i = 0; i < 4; ++i) all_reduce(2000, InPlace::kYes);
    if (name == "reader") reader(MUSTER_ALL_REDUCE);
    if (name == "reader_in_place") reader(MUSTER_ALL_TO_ALL);
    if (name == "read") all_reduce(40'000);
    if (name == "read_in_place") all_reduce(40'000, InPlace::kYes);
    if (name == "slices") reduce(40'000);
    if (name == "gather") gather(40'000);
    if (name == "blocks") all_to_all(8);
    if (name == "blocks_in_place") all_to_all_in_place(60'000);
    if (name == "exchange") exchange();
    if (name == "pairs") pairs(4), pairs(10'000);
    if (name == "shared") shared(30'000);
    if (name == "early") await_go_unless(rank_ == victim_), barrier(kPatienceNs);
    if (name == "late") await_go_unless(rank_ != victim_), barrier(kPatienceNs);
    if (name == "start") start(4096);
    if (name == "early_start") await_go_unless(rank_ == victim_), start(4096, kPatienceNs);
    if (name == "late_start") late_start();
    if (name == "batch") batch();
    if (name == "signal") signal();
    if (name == "recount") recount();
    if (name == "reset") expect(muster_lane_reset(session_, MUSTER_LANE_COPY));
    if (name == "alloc") alloc();
    if (name == "named") special("a name", -1);
    if (name == "import") import();
    if (name == "plan") expect(muster_plan_destroy(session_, plan(described(MUSTER_BARRIER, 0))));
    if (name == "objects") objects();
    if (name == "compare") compare();
    if (name.starts_with("share:")) share(std::atoi(name.c_str() + 6));
    if (name.starts_with("mixed:")) mixed(std::atoi(name.c_str() + 6));
    if (name == "event" && muster_event_fd(session_) < 0) wrong();
    if (name == "abort") abort_group();
    if (name == "overdue") overdue();
    if (name == "disagree") disagree();
  }

  void meet() {
    begin("meet");
    barrier();
    start(64);
  }

  int part() {
    begin("part");
    if (rank_ == victim_) {
      const bool left = muster_close(session_) == MUSTER_OK;
      std::printf(left ? "left\n" : "wrong close\n");
      return left ? 0 : 3;
    }
    muster_status_t status = MUSTER_OK;
    while (status == MUSTER_OK) {
      called_ = now_ns();
      status = muster_barrier(session_, group_);
    }
    const long long heard = now_ns();
    std::printf("parted %s %lld %lld %s\n", muster_status_name(status), called_, heard, muster_last_error());
    return muster_close(session_) == MUSTER_OK ? 0 : 3;
  }

 private:
  enum class InPlace { kNo, kYes };

  void begin(const std::string& step) {
    step_ = step;
    called_ = now_ns();
  }
  [[noreturn]] void wrong() {
    std::printf("wrong %s\n", step_.c_str());
    std::fflush(stdout);
    _exit(3);
  }
  // One of these statuses, or this rank's part in the job is over.
  muster_status_t expect(muster_status_t status, std::initializer_list<muster_status_t> usual = {MUSTER_OK}) {
    if (std::find(usual.begin(), usual.end(), status) != usual.end()) return status;
    const long long heard = now_ns();
    const std::string text = muster_last_error();
    std::printf("lost %s %s %lld %lld %s\n", step_.c_str(), muster_status_name(status), called_, heard,
                text.c_str());
    std::fflush(stdout);
    static_cast<void>(muster_close(session_));
    std::exit(42);
  }
  void check(const float* values, std::uint64_t count, float value) {
    for (std::uint64_t i = 0; i < count; ++i)
      if (values[i] != value) wrong();
  }
  static void await_go() {
    char go = 0;
    if (read(STDIN_FILENO, &go, 1) != 1) std::exit(2);
  }
  static void await_go_unless(bool goes) {
    if (!goes) await_go();
  }
  float sum() const { return static_cast<float>(world_ * (world_ + 1) / 2); }
  float mine() const { return static_cast<float>(rank_ + 1); }

  muster_collective described(muster_op op, std::uint64_t count, InPlace in_place = InPlace::kNo) const {
    muster_collective what = MUSTER_COLLECTIVE_INIT;
    what.op = op;
    what.group = group_;
    if (op == MUSTER_BARRIER) return what;
    what.dtype = MUSTER_F32;
    what.redop = op == MUSTER_ALL_REDUCE || op == MUSTER_REDUCE ? MUSTER_SUM : 0;
    what.source = {buffer_, 0};
    what.target = {buffer_, in_place == InPlace::kYes ? 0 : kTarget};
    what.count = count;
    return what;
  }
  muster_plan plan(const muster_collective& what) {
    muster_plan plan = 0;
    called_ = now_ns();
    expect(muster_plan_collective(session_, &what, &plan));
    return plan;
  }
  muster_status_t run(const muster_collective& what, std::int64_t timeout_ns = 0,
                      std::initializer_list<muster_status_t> usual = {MUSTER_OK}) {
    const muster_plan made = plan(what);
    called_ = now_ns();
    return expect(muster_plan_run(session_, made, timeout_ns), usual);
  }

  // ---- run directly
  void barrier(std::int64_t timeout_ns = 0) { run(described(MUSTER_BARRIER, 0), timeout_ns); }
  void all_reduce(std::uint64_t count, InPlace in_place = InPlace::kNo) {
    std::fill_n(source_, count, mine());
    run(described(MUSTER_ALL_REDUCE, count, in_place));
    check(in_place == InPlace::kYes ? source_ : target_, count, sum());
  }
  // The victim reads what a second rank has given. That one must wait for it before it can give for the third
  // time, to a third rank, which has less patience.
  void reader(muster_op op) {
    const int giver = (victim_ + 1) % world_;
    const int third = (victim_ + 2) % world_;
    if (rank_ != third) give_in({victim_, giver}, op, {0});
    if (rank_ != victim_) give_in({giver, third}, MUSTER_ALL_REDUCE, {0, rank_ == third ? kSoonNs : 0});
  }
  void give_in(std::initializer_list<std::int32_t> members, muster_op op,
               std::initializer_list<std::int64_t> timeouts) {
    constexpr std::uint64_t kStaged = 2000;  // elements
    const bool reduces = op == MUSTER_ALL_REDUCE;
    muster_collective what = described(op, kStaged, InPlace::kYes);
    expect(muster_group_make(session_, members.begin(), members.size(), nullptr, &what.group));
    for (const std::int64_t timeout_ns : timeouts) {
      std::fill_n(source_, kStaged * members.size(), 1.0f);
      run(what, timeout_ns);
      check(source_, kStaged, reduces ? static_cast<float>(members.size()) : 1.0f);
    }
  }
  void reduce(std::uint64_t count) {
    std::fill_n(source_, count, mine());
    run(described(MUSTER_REDUCE, count));
    if (rank_ == 0) check(target_, count, sum());
  }
  void gather(std::uint64_t count) {
    std::fill_n(source_, count, mine());
    run(described(MUSTER_ALL_GATHER, count));
    for (int r = 0; r < world_; ++r)
      check(target_ + static_cast<std::uint64_t>(r) * count, count, static_cast<float>(r + 1));
  }
  void all_to_all(std::uint64_t count) {
    std::fill_n(source_, count * static_cast<std::uint64_t>(world_), mine());
    run(described(MUSTER_ALL_TO_ALL, count));
    for (int r = 0; r < world_; ++r)
      check(target_ + static_cast<std::uint64_t>(r) * count, count, static_cast<float>(r + 1));
  }
  void all_to_all_in_place(std::uint64_t count) {
    std::fill_n(source_, count * static_cast<std::uint64_t>(world_), mine());
    run(described(MUSTER_ALL_TO_ALL, count, InPlace::kYes));
    for (int r = 0; r < world_; ++r)
      check(source_ + static_cast<std::uint64_t>(r) * count, count, static_cast<float>(r + 1));
  }
  // A ring of neighbours: faces that are copied, and faces that are read where they lie.
  void exchange() {
    for (const std::int64_t count : {std::int64_t{8}, std::int64_t{100'000}}) {
      std::fill_n(source_, count, mine());
      const int before = (rank_ + world_ - 1) % world_;
      muster_face sent{(rank_ + 1) % world_, 0, {buffer_, 0, MUSTER_F32, 1, {count}, {1}}};
      muster_face got{before, 0, {buffer_, kTarget, MUSTER_F32, 1, {count}, {1}}};
      muster_collective what = described(MUSTER_EXCHANGE, 0);
      what.source = what.target = {0, 0};
      what.sends = &sent;
      what.receives = &got;
      what.send_count = what.receive_count = 1;
      run(what);
      check(target_, static_cast<std::uint64_t>(count), static_cast<float>(before + 1));
    }
  }
  // Around the ring, one message after the other.
  void pairs(std::uint64_t count) {
    std::fill_n(source_, count, mine());
    muster_collective sent = described(MUSTER_SEND, count);
    sent.peer = (rank_ + 1) % world_;
    sent.target = {0, 0};
    muster_collective got = described(MUSTER_RECV, count);
    got.peer = (rank_ + world_ - 1) % world_;
    got.source = {0, 0};
    if (rank_ == 0) run(sent);
    run(got);
    check(target_, count, static_cast<float>(got.peer + 1));
    if (rank_ != 0) run(sent);
  }
  void shared(std::uint64_t count) {
    muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
    options.bytes = count * sizeof(float);
    options.name = "shared";
    options.shared_by = group_;
    muster_buffer buffer = 0;
    void* address = nullptr;
    expect(muster_buffer_create(session_, &options, &buffer, &address));
    std::fill_n(source_, count, mine());
    muster_collective what = described(MUSTER_ALL_REDUCE, count);
    what.target = {buffer, 0};
    const muster_plan made = plan(what);
    called_ = now_ns();
    expect(muster_plan_run(session_, made, 0));
    check(static_cast<const float*>(address), count, sum());
    expect(muster_plan_destroy(session_, made));
    expect(muster_buffer_free(session_, buffer));
  }

  // ---- by the engine
  void start(std::uint64_t count, std::int64_t deadline_ns = 0) {
    std::fill_n(source_, count, mine());
    const muster_plan made = plan(described(MUSTER_ALL_REDUCE, count));
    await(begin_start(made, MUSTER_POINT_NONE, deadline_ns));
    check(target_, count, sum());
  }
  // Alone, again and again after a pause: at least one of these finds the engine asleep and has to ring. The
  // others wait in the group for what comes after.
  void late_start() {
    constexpr int kRings = 6;
    muster_collective alone = described(MUSTER_BARRIER, 0);
    alone.group = MUSTER_GROUP_SELF;
    for (int i = 0; rank_ == victim_ && i < kRings; ++i) {
      usleep(kLateUs / 4);
      await(begin_start(plan(alone)));
    }
    start(4096);
  }
  muster_point begin_start(muster_plan plan, muster_point wait = MUSTER_POINT_NONE,
                           std::int64_t deadline_ns = 0) {
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_ALLREDUCE;
    submit.wait_count = wait == MUSTER_POINT_NONE ? 0 : 1;
    submit.waits[0] = wait;
    submit.deadline_ns = deadline_ns;
    muster_point point = 0;
    called_ = now_ns();
    expect(muster_plan_start(session_, plan, &submit, &point));
    return point;
  }
  void await(muster_point point) { expect(muster_point_wait(session_, point, -1)); }
  void batch() {
    std::fill_n(source_, 64, mine());
    muster_batch_entry entries[2] = {};
    for (muster_batch_entry& entry : entries) {
      entry.plan = plan(described(MUSTER_ALL_REDUCE, 64));
      entry.submit = MUSTER_SUBMIT_INIT;
      entry.submit.lane = MUSTER_LANE_ALLREDUCE;
    }
    entries[1].submit.lane = MUSTER_LANE_SMALL;
    entries[1].submit.wait_count = 1;
    entries[1].submit.waits[0] = MUSTER_POINT_OF_ENTRY(0);
    called_ = now_ns();
    expect(muster_plan_start_batch(session_, entries, 2));
    for (const muster_batch_entry& entry : entries) await(entry.point);
    check(target_, 64, sum());
  }
  void signal() {
    std::uint32_t timeline = 0;
    expect(muster_timeline_create(session_, &timeline));
    std::fill_n(source_, 64, mine());
    const muster_point point =
        begin_start(plan(described(MUSTER_ALL_REDUCE, 64)), muster_timeline_point(timeline, 1));
    expect(muster_timeline_signal(session_, timeline, 1));
    await(point);
    check(target_, 64, sum());
  }
  void recount() {
    std::fill_n(source_, 1000, mine());
    const muster_plan made = plan(described(MUSTER_ALL_REDUCE, 1000));
    expect(muster_plan_run(session_, made, 0));
    expect(muster_plan_recount(session_, made, 500, nullptr, nullptr));
    called_ = now_ns();
    expect(muster_plan_run(session_, made, 0));
    std::fill_n(target_, 1000, 0.0f);
    await(begin_start(made));
    check(target_, 500, sum());
    check(target_ + 500, 500, 0.0f);
  }

  // ---- memory
  void alloc() {
    muster_buffer buffer = 0;
    expect(muster_buffer_alloc(session_, 64 << 10, &buffer, nullptr));
    expect(muster_buffer_free(session_, buffer));
  }
  void special(const char* name, int memory) {
    muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
    options.bytes = 64 << 10;
    options.name = name;
    options.memory = memory;
    muster_buffer buffer = 0;
    expect(muster_buffer_create(session_, &options, &buffer, nullptr));
    expect(muster_buffer_free(session_, buffer));
  }
  void import() {
    const int memory = memfd_create("fault-rank", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory < 0 || ftruncate(memory, 64 << 10) != 0 || fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
      wrong();
    special(nullptr, memory);
    close(memory);
  }

  // ---- deliberate failures
  void objects() {
    const std::string text(static_cast<std::size_t>(70'000 + rank_), static_cast<char>('a' + rank_));
    const void* all = nullptr;
    std::vector<std::uint64_t> offsets(static_cast<std::size_t>(world_) + 1);
    expect(muster_object_gather(session_, group_, -1, text.data(), text.size(), &all, offsets.data()));
    for (std::size_t r = 0; r < static_cast<std::size_t>(world_); ++r)
      if (offsets[r + 1] - offsets[r] != 70'000 + r ||
          static_cast<const char*>(all)[offsets[r]] != static_cast<char>('a' + r))
        wrong();
  }
  void compare() {
    std::fill_n(source_, 1000, 1.0f);
    const muster_tensor view{buffer_, 0, MUSTER_F32, 1, {1000}, {1}};
    called_ = now_ns();
    expect(muster_compare(session_, group_, &view, 1, 0));
  }
  // The victim's results may be wrong, which is not checked here: that members notice is the point.
  void share(int count) {
    const muster_plan made = plan(described(MUSTER_ALL_REDUCE, 1000));
    std::fill_n(source_, 1000, mine());
    for (int i = 1; i <= count; ++i) {
      called_ = now_ns();
      if (expect(muster_plan_run(session_, made, 0), {MUSTER_OK, MUSTER_ERR_CORRUPT}) == MUSTER_OK) continue;
      std::printf("corrupt %d %s\n", i, muster_last_error());
      std::fflush(stdout);
      barrier();
      compare();
      std::fill_n(source_, 1000, mine());
      expect(muster_plan_run(session_, made, 0));
      return;
    }
  }
  void mixed(int count) {
    std::vector<muster_plan> plans;
    for (const std::uint64_t size : {2, 256, 2000, 5000})
      for (const muster_op op : {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_BROADCAST})
        for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16}) {
          muster_collective what = described(op, size, size == 2000 ? InPlace::kYes : InPlace::kNo);
          if (op == MUSTER_ALL_GATHER) what.target = {buffer_, kTarget};
          if (op == MUSTER_ALL_REDUCE && dtype == MUSTER_BF16) what.redop = MUSTER_AVG;
          if (op == MUSTER_BROADCAST) what.peer = static_cast<std::int32_t>(size) / 2 % world_;
          what.dtype = dtype;
          plans.push_back(plan(what));
        }
    std::uint32_t random = 2654435761u * static_cast<std::uint32_t>(rank_ + 1);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      for (std::size_t k = 0; k < 8; ++k) {  // any bits: NaN and infinity too
        random = random * 1664525u + 1013904223u;
        std::memcpy(source_ + (random >> 8) % 5000, &random, sizeof random);
      }
      called_ = now_ns();
      expect(muster_plan_run(session_, plans[i % plans.size()], 0));
    }
  }
  void abort_group() {
    if (rank_ == victim_) expect(muster_group_abort(session_, group_));
    run(described(MUSTER_BARRIER, 0), 0, {MUSTER_ERR_ABORTED});
    // A rank with nothing in flight on a lane gets the abort there with its next start.
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_ALLREDUCE;
    muster_point point = 0;
    const muster_plan made = plan(described(MUSTER_BARRIER, 0));
    called_ = now_ns();
    expect(muster_plan_start(session_, made, &submit, &point));
    expect(muster_point_wait(session_, point, -1), {MUSTER_ERR_ABORTED});
    expect(muster_lane_reset(session_, MUSTER_LANE_ALLREDUCE));
  }
  // The victim is alone at its deadline. A rank that comes later gets the timeout. It meets the victim if the
  // victim's timeout is not reported yet.
  void overdue() {
    const bool hurries = rank_ == victim_;
    if (!hurries) usleep(kVeryLateUs);
    run(described(MUSTER_BARRIER, 0), hurries ? kHurryNs : 0, {MUSTER_ERR_TIMEOUT, MUSTER_OK});
  }
  void disagree() { run(described(MUSTER_ALL_REDUCE, rank_ == victim_ ? 3 : 2), 0, {MUSTER_ERR_MISMATCH}); }

  int rank_, world_, victim_;
  std::string step_;
  long long called_ = 0;
  muster_session* session_ = nullptr;
  muster_group group_ = 0;
  muster_buffer buffer_ = 0;
  float* source_ = nullptr;
  float* target_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  Rank rank(argv[1], argv[2], std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]));
  for (int i = 6; i < argc; ++i) rank.step(argv[i]);
  rank.meet();
  return rank.part();
}
