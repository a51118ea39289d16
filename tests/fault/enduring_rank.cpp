// A rank that goes on whatever happens to others: enduring_rank SEED
//
// It attaches as its environment says and works until it is killed. Six operations go on side by side, each
// at a pace of its own and with a lane of its own:
//
//   small, large   all-reduces of the world, started
//   send, receive  a message to the rank of the same place on the next node, and one from the node before
//   local          an all-reduce of the node's ranks (dim tp), started; now and then the same is run
//   gather         an all-gather of the world, run
//
// Every operation has the same shape each time, so members whose operations have failed at different moments
// still match. Each member's data begins with its identity and the number of its operation. A hash gives the
// rest of the data. So each result is checked to the bit, and an old one is noticed too.
//
// A run waits for the other members while this rank does nothing else. So all must agree on when to run: the
// result of a started operation says so, which all its members see.
//
// A group's failure is noted, the lane reset, and the operation begun again. Each line of standard output is
// a JSON object: "at" is the monotonic clock in ns, "life" when this process began, "what" is
//
//   open      the rank is attached
//   progress  ten times a second, and before a run: `counts` of completed operations, and `waiting`: when
//             those began that are not
//   error     an operation of this rank failed: op, begun, code, culprit, text
//   wrong     a result is not what it should be
//   ended     the session has ended: code and text. Exits 3
//   refused   anything else that should not happen. Exits 4
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <muster/muster.h>

namespace {

using Steady = std::chrono::steady_clock;
using Millis = std::chrono::milliseconds;

constexpr auto kPatience = std::chrono::seconds(60);  // until the rank is attached
constexpr std::int64_t kOpenNs = 2'000'000'000;
constexpr auto kProgressEvery = Millis(100);
constexpr std::int64_t kGlanceNs = 5'000'000;
constexpr auto kAgain = Millis(20);  // after a failure; doubled for each that follows
constexpr int kAgainDoublings = 4;
constexpr std::uint64_t kLocalRunEvery = 4, kGatherEvery = 16;
constexpr int kEnded = 3, kRefused = 4;

std::int64_t ns(Steady::time_point at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The identity of a contributing member, and the number of its operation of this kind.
struct Stamp {
  std::uint64_t life = 0;  // when the process began: higher for each later one
  std::uint64_t number = 0;
  std::uint64_t wish = 0;  // the gather that this member is ready to run; 0: none
  friend bool operator<(const Stamp& a, const Stamp& b) {
    return a.life != b.life ? a.life < b.life : a.number < b.number;
  }
};
constexpr std::uint64_t kStampWords = 3;

// The words that a rank gives with a stamp.
class Words {
 public:
  Words(std::uint64_t seed, std::uint64_t rank, const Stamp& stamp)
      : key_(mixed(mixed(mixed(seed + rank) + stamp.life) + stamp.number)) {}
  std::uint64_t operator[](std::uint64_t i) const { return mixed(key_ + i); }

 private:
  std::uint64_t key_;
};

// ---- output

std::uint64_t g_life;

std::string quoted(const std::string& text) {
  std::string all = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') all += '\\';
    all += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return all + "\"";
}

void say(const char* what, const std::string& more) {
  std::printf("{\"what\":\"%s\",\"at\":%" PRId64 ",\"life\":%" PRIu64 "%s%s}\n", what, ns(Steady::now()),
              g_life, more.empty() ? "" : ",", more.c_str());
  std::fflush(stdout);
}

std::string outcome(muster_status_t status) {
  return "\"code\":" + std::to_string(status) + ",\"name\":" + quoted(muster_status_name(status)) +
         ",\"text\":" + quoted(muster_last_error());
}

[[noreturn]] void leave(const char* op, muster_status_t status) {
  const bool ended = status <= -300 && status > -400;
  say(ended ? "ended" : "refused", "\"op\":" + quoted(op) + "," + outcome(status));
  std::_Exit(ended ? kEnded : kRefused);
}

void require(const char* op, muster_status_t status) {
  if (status != MUSTER_OK) leave(op, status);
}

// ---- one operation

struct World {
  muster_session* session = nullptr;
  std::uint64_t seed = 0;
  int rank = 0, size = 0, per_node = 0;
};

// The data that a member contributes and receives, and its check.
class Content {
 public:
  virtual ~Content() = default;
  virtual void fill(const Stamp& mine) = 0;
  // Empty if all is right.
  virtual std::string fault(const Stamp& mine) = 0;
  virtual muster_plan plan() const = 0;
};

class Memory {
 public:
  Memory(const World& world, std::uint64_t words) {
    void* address = nullptr;
    require("alloc", muster_buffer_alloc(world.session, words * sizeof(std::uint64_t), &buffer_, &address));
    words_ = static_cast<std::uint64_t*>(address);
  }
  std::uint64_t* operator+(std::uint64_t word) const { return words_ + word; }
  muster_range from(std::uint64_t word) const { return {buffer_, word * sizeof(std::uint64_t)}; }

 private:
  muster_buffer buffer_ = 0;
  std::uint64_t* words_ = nullptr;
};

void write_stamp(std::uint64_t* at, const Stamp& stamp) {
  at[0] = stamp.life;
  at[1] = stamp.number;
  at[2] = stamp.wish;
}
Stamp stamp_at(const std::uint64_t* at) {
  return {at[0], at[1], at[2]};
}

// The latest stamp of each giver: none comes twice, and none from the past.
class Latest {
 public:
  std::string fault(int rank, const Stamp& now, const Stamp* mine) {
    if (mine != nullptr && (now.life != mine->life || now.number != mine->number))
      return "this rank's own number is " + std::to_string(now.number) + ", and it gave " +
             std::to_string(mine->number);
    const auto [known, fresh] = latest_.emplace(rank, now);
    if (!fresh && !(known->second < now))
      return "rank " + std::to_string(rank) + " gave number " + std::to_string(now.number) + " after " +
             std::to_string(known->second.number);
    known->second = now;
    return "";
  }

 private:
  std::map<int, Stamp> latest_;
};

std::string differs(std::uint64_t index, std::uint64_t got, std::uint64_t wanted) {
  return "word " + std::to_string(index) + " is " + std::to_string(got) + ", not " + std::to_string(wanted);
}

// The sum of all members' words. Each puts its stamp where the others have zeros.
class Sum : public Content {
 public:
  Sum(const World& world, muster_group group, std::uint64_t words, const char* site)
      : world_(world),
        ranks_(members(world, group)),
        words_(words),
        memory_(world, 2 * (kStampWords * ranks_.size() + words)) {
    muster_collective what = MUSTER_COLLECTIVE_INIT;
    what.op = MUSTER_ALL_REDUCE;
    what.redop = MUSTER_SUM;
    what.dtype = MUSTER_I64;
    what.group = group;
    what.count = head() + words_;
    what.source = memory_.from(0);
    what.target = memory_.from(head() + words_);
    what.site = site;
    require(site, muster_plan_collective(world.session, &what, &plan_));
  }
  muster_plan plan() const override { return plan_; }
  void fill(const Stamp& mine) override {
    std::fill_n(memory_ + 0, head(), 0);
    const auto me = std::find(ranks_.begin(), ranks_.end(), world_.rank) - ranks_.begin();
    write_stamp(memory_ + kStampWords * static_cast<std::uint64_t>(me), mine);
    const Words words(world_.seed, static_cast<std::uint64_t>(world_.rank), mine);
    for (std::uint64_t i = 0; i < words_; ++i) (memory_ + head())[i] = words[i];
  }
  std::string fault(const Stamp& mine) override {
    const std::uint64_t* result = memory_ + (head() + words_);
    std::vector<Words> all;
    wish_ = 0;
    for (std::size_t m = 0; m < ranks_.size(); ++m) {
      const Stamp stamp = stamp_at(result + kStampWords * m);
      if (m == 0) first_ = stamp.number;
      wish_ = m == 0 || stamp.wish == wish_ ? stamp.wish : 0;
      std::string fault = latest_.fault(ranks_[m], stamp, ranks_[m] == world_.rank ? &mine : nullptr);
      if (!fault.empty()) return fault;
      all.emplace_back(world_.seed, static_cast<std::uint64_t>(ranks_[m]), stamp);
    }
    for (std::uint64_t i = 0; i < words_; ++i) {
      std::uint64_t sum = 0;
      for (const Words& words : all) sum += words[i];
      if (result[head() + i] != sum) return differs(i, result[head() + i], sum);
    }
    return "";
  }
  // From the latest result, equal at all members: the first member's number, and the gather that all request.
  std::uint64_t first() const { return first_; }
  std::uint64_t wish() const { return wish_; }

 private:
  static std::vector<int> members(const World& world, muster_group group) {
    if (group == MUSTER_GROUP_SELF) return {world.rank};
    std::vector<std::int32_t> ranks(static_cast<std::size_t>(world.size));
    std::size_t count = 0;
    require("members", muster_group_ranks(world.session, group, ranks.data(), ranks.size(), &count));
    return {ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  std::uint64_t head() const { return kStampWords * ranks_.size(); }

  const World& world_;
  std::vector<int> ranks_;
  std::uint64_t words_;
  Memory memory_;
  muster_plan plan_ = 0;
  Latest latest_;
  std::uint64_t first_ = 0, wish_ = 0;
};

// A stamp and words of one rank, as they travel.
struct Block {
  static void fill(std::uint64_t* at, std::uint64_t words, const World& world, const Stamp& mine) {
    write_stamp(at, mine);
    const Words all(world.seed, static_cast<std::uint64_t>(world.rank), mine);
    for (std::uint64_t i = 0; i < words; ++i) at[kStampWords + i] = all[i];
  }
  static std::string fault(const std::uint64_t* at, std::uint64_t words, const World& world, int giver) {
    const Words all(world.seed, static_cast<std::uint64_t>(giver), stamp_at(at));
    for (std::uint64_t i = 0; i < words; ++i)
      if (at[kStampWords + i] != all[i])
        return "from rank " + std::to_string(giver) + ": " + differs(i, at[kStampWords + i], all[i]);
    return "";
  }
};

class Gather : public Content {
 public:
  Gather(const World& world, muster_group group, std::uint64_t words)
      : world_(world),
        words_(words),
        memory_(world, (words + kStampWords) * (static_cast<std::uint64_t>(world.size) + 1)) {
    muster_collective what = MUSTER_COLLECTIVE_INIT;
    what.op = MUSTER_ALL_GATHER;
    what.dtype = MUSTER_I64;
    what.group = group;
    what.count = words_ + kStampWords;
    what.source = memory_.from(0);
    what.target = memory_.from(words_ + kStampWords);
    what.site = "gather";
    require("gather", muster_plan_collective(world.session, &what, &plan_));
  }
  muster_plan plan() const override { return plan_; }
  void fill(const Stamp& mine) override { Block::fill(memory_ + 0, words_, world_, mine); }
  std::string fault(const Stamp& mine) override {
    for (int giver = 0; giver < world_.size; ++giver) {
      const std::uint64_t* block = memory_ + (words_ + kStampWords) * (static_cast<std::uint64_t>(giver) + 1);
      std::string fault = latest_.fault(giver, stamp_at(block), giver == world_.rank ? &mine : nullptr);
      if (fault.empty()) fault = Block::fault(block, words_, world_, giver);
      if (!fault.empty()) return fault;
    }
    return "";
  }

 private:
  const World& world_;
  std::uint64_t words_;
  Memory memory_;
  muster_plan plan_ = 0;
  Latest latest_;
};

class Message : public Content {
 public:
  Message(const World& world, muster_group group, muster_op op, int partner, std::uint64_t words)
      : world_(world), op_(op), partner_(partner), words_(words), memory_(world, words + kStampWords) {
    muster_collective what = MUSTER_COLLECTIVE_INIT;
    what.op = op;
    what.dtype = MUSTER_I64;
    what.group = group;
    what.peer = partner;
    what.count = words_ + kStampWords;
    (op == MUSTER_SEND ? what.source : what.target) = memory_.from(0);
    what.site = op == MUSTER_SEND ? "send" : "receive";
    require(what.site, muster_plan_collective(world.session, &what, &plan_));
  }
  muster_plan plan() const override { return plan_; }
  void fill(const Stamp& mine) override {
    if (op_ == MUSTER_SEND) Block::fill(memory_ + 0, words_, world_, mine);
  }
  std::string fault(const Stamp&) override {
    if (op_ == MUSTER_SEND) return "";
    std::string fault = latest_.fault(partner_, stamp_at(memory_ + 0), nullptr);
    return fault.empty() ? Block::fault(memory_ + 0, words_, world_, partner_) : fault;
  }

 private:
  const World& world_;
  muster_op op_;
  int partner_;
  std::uint64_t words_;
  Memory memory_;
  muster_plan plan_ = 0;
  Latest latest_;
};

// ---- all of them

// An operation that goes on and on, started or run.
struct Track {
  const char* name = nullptr;
  muster_lane lane = 0;
  Millis pace{0};
  Content* content = nullptr;
  Stamp stamp;
  muster_point point = MUSTER_POINT_NONE;
  Steady::time_point begun, due;
  std::uint64_t completed = 0;
  int failures = 0;      // since it was last completed
  bool stopped = false;  // its lane awaits a reset
};

class Rank {
 public:
  explicit Rank(World& world) : world_(world) {
    muster_group all = 0, here = 0;
    require("world", muster_mesh_group(world.session, "world", &all));
    require("tp", muster_mesh_group(world.session, "tp", &here));
    small_ = std::make_unique<Sum>(world, all, 64, "small");
    large_ = std::make_unique<Sum>(world, all, 32'768, "large");
    local_ = std::make_unique<Sum>(world, here, 256, "local");
    local_run_ = std::make_unique<Sum>(world, here, 1000, "local run");
    gather_ = std::make_unique<Gather>(world, all, 500);
    add("small", MUSTER_LANE_SMALL, Millis(5), *small_);
    add("large", MUSTER_LANE_ALLREDUCE, Millis(40), *large_);
    add("local", MUSTER_LANE_REDUCE, Millis(8), *local_);
    const int next = (world.rank + world.per_node) % world.size;
    const int before = (world.rank + world.size - world.per_node) % world.size;
    if (next != world.rank) {
      send_ = std::make_unique<Message>(world, all, MUSTER_SEND, next, 2000);
      receive_ = std::make_unique<Message>(world, all, MUSTER_RECV, before, 2000);
      add("send", MUSTER_LANE_HALO, Millis(10), *send_);
      add("receive", MUSTER_LANE_COPY, Millis(10), *receive_);
    }
    started_ = tracks_.size();
    add("local run", MUSTER_LANE_NONE, Millis(0), *local_run_);
    add("gather", MUSTER_LANE_NONE, Millis(0), *gather_);
  }

  [[noreturn]] void work() {
    while (true) {
      const auto now = Steady::now();
      if (now >= next_progress_) progress(now);
      std::array<muster_point, 8> points{};
      std::array<Track*, 8> owners{};
      std::size_t count = 0;
      for (std::size_t i = 0; i < started_; ++i) {
        Track& track = tracks_[i];
        if (track.point == MUSTER_POINT_NONE && now >= track.due) begin(track);
        if (track.point == MUSTER_POINT_NONE) continue;
        points[count] = track.point;
        owners[count++] = &track;
      }
      if (count == 0) {
        std::this_thread::sleep_for(Millis(1));
        continue;
      }
      std::size_t index = count;
      const muster_status_t status =
          muster_point_wait_any(world_.session, points.data(), count, kGlanceNs, &index);
      if (index < count)
        finish(*owners[index], status);
      else if (status != MUSTER_ERR_WAIT_TIMEOUT)
        leave("wait", status);
    }
  }

 private:
  void add(const char* name, muster_lane lane, Millis pace, Content& content) {
    Track track;
    track.name = name;
    track.lane = lane;
    track.pace = pace;
    track.content = &content;
    tracks_.push_back(track);
  }
  Track& track(const Content& content) {
    return *std::find_if(tracks_.begin(), tracks_.end(),
                         [&](const Track& track) { return track.content == &content; });
  }

  void prepare(Track& track) {
    track.stamp = {g_life, track.stamp.number + 1, wishes_.empty() ? 0 : wishes_.front()};
    track.content->fill(track.stamp);
    track.begun = Steady::now();
  }

  void begin(Track& track) {
    if (track.stopped) {
      const muster_status_t reset = muster_lane_reset(world_.session, track.lane);
      if (reset == MUSTER_ERR_BUSY) {
        track.due = Steady::now() + Millis(5);
        return;
      }
      require("reset", reset);
      track.stopped = false;
    }
    prepare(track);
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = track.lane;
    const muster_status_t status =
        muster_plan_start(world_.session, track.content->plan(), &submit, &track.point);
    if (status == MUSTER_OK) return;
    track.point = MUSTER_POINT_NONE;
    if (status != MUSTER_ERR_BUSY) leave(track.name, status);
    track.due = Steady::now() + Millis(5);
  }

  // A started operation has its outcome.
  void finish(Track& track, muster_status_t status) {
    track.point = MUSTER_POINT_NONE;
    track.stopped = status != MUSTER_OK;
    if (!note(track, status)) return;
    // Where this rank was told of a failure first, another may have completed `small` before, and has
    // forgotten the wish since.
    if (track.content == small_.get() && small_->first() % kGatherEvery == 0 && track.begun >= forgotten_)
      wishes_.push_back(small_->first());
    if (track.content == local_.get()) run_what_all_wish();
  }

  // All ranks of the node see the same result of `local`, so they run the same now. A rank that has forgotten
  // its wishes has heard of a failure; the others then hear of it from their run.
  void run_what_all_wish() {
    const std::uint64_t first = local_->first();
    const bool gather = !wishes_.empty() && local_->wish() == wishes_.front();
    if (first % kLocalRunEvery == 0) run_local();
    if (!gather || wishes_.empty()) return;  // `local run` may have told of a failure
    wishes_.pop_front();
    run(track(*gather_));
  }

  // A loss on this node of which the engine has told comes once more from the next run on the direct path.
  // That is no answer to this run, for the others wait in it, and no other failure.
  void run_local() {
    may_be_told_again_ = std::exchange(told_by_engine_, false);
    const bool again = run(track(*local_run_)) == MUSTER_ERR_PEER_LOST && may_be_told_again_;
    may_be_told_again_ = false;
    if (again) run(track(*local_run_));
  }
  void note_loss(const Track& failed, int culprit, Steady::time_point now) {
    if (failed.content == local_run_.get())
      told_by_run_ = now;
    else if (culprit / world_.per_node == world_.rank / world_.per_node && failed.begun >= told_by_run_)
      told_by_engine_ = true;
  }

  // The failure of an operation that began before the last one was told of is no other failure.
  void forget_wishes(const Track& failed, Steady::time_point now) {
    if (failed.begun < forgotten_ || may_be_told_again_) return;
    wishes_.clear();
    forgotten_ = now;
  }

  muster_status_t run(Track& track) {
    prepare(track);
    running_ = &track;
    progress(track.begun);
    running_ = nullptr;
    const muster_status_t status = muster_plan_run(world_.session, track.content->plan(), 0);
    if (status != MUSTER_ERR_BUSY) note(track, status);
    return status;
  }

  // True if it was completed, and its result was looked at.
  bool note(Track& track, muster_status_t status) {
    const auto now = Steady::now();
    if (status == MUSTER_OK) {
      const std::string fault = track.content->fault(track.stamp);
      if (!fault.empty()) say("wrong", about(track) + ",\"text\":" + quoted(fault));
      ++track.completed;
      track.failures = 0;
      track.due = std::max(now, track.begun + track.pace);
      return fault.empty();
    }
    if (status > -200 || status <= -300) leave(track.name, status);
    muster_failure failure = MUSTER_FAILURE_INIT;
    const bool known = muster_last_failure(world_.session, &failure) == MUSTER_OK;
    say("error", about(track) + "," + outcome(status) +
                     ",\"culprit\":" + std::to_string(known ? failure.culprit_rank : -2));
    if (status == MUSTER_ERR_PEER_LOST) note_loss(track, failure.culprit_rank, now);
    forget_wishes(track, now);
    track.due = now + kAgain * (1 << std::min(track.failures++, kAgainDoublings));
    return false;
  }

  static std::string about(const Track& track) {
    return "\"op\":" + quoted(track.name) + ",\"begun\":" + std::to_string(ns(track.begun)) +
           ",\"number\":" + std::to_string(track.stamp.number);
  }

  void progress(Steady::time_point now) {
    std::string counts, waiting;
    for (const Track& track : tracks_) {
      counts += (counts.empty() ? "" : ",") + quoted(track.name) + ":" + std::to_string(track.completed);
      if (track.point != MUSTER_POINT_NONE || &track == running_)
        waiting += (waiting.empty() ? "" : ",") + quoted(track.name) + ":" + std::to_string(ns(track.begun));
    }
    say("progress", "\"counts\":{" + counts + "},\"waiting\":{" + waiting + "}");
    next_progress_ = now + kProgressEvery;
  }

  World& world_;
  std::unique_ptr<Sum> small_, large_, local_, local_run_;
  std::unique_ptr<Gather> gather_;
  std::unique_ptr<Message> send_, receive_;
  std::vector<Track> tracks_;  // the first `started_` are started, the others run
  std::size_t started_ = 0;
  // The engine reported a loss on this node since the last `local run`. So the current run may report it
  // again.
  bool told_by_engine_ = false, may_be_told_again_ = false;
  Steady::time_point told_by_run_;
  Steady::time_point forgotten_;      // when the requests were cleared
  std::deque<std::uint64_t> wishes_;  // the gathers that are due, by the number of the `small` that says so
  Steady::time_point next_progress_;
  const Track* running_ = nullptr;  // it is about to be run
};

// A node may still be starting, or its daemon may not know yet that this rank's last process is gone.
muster_session* attached() {
  const auto end = Steady::now() + kPatience;
  while (true) {
    muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
    options.timeout_ns = kOpenNs;
    muster_session* session = nullptr;
    const muster_status_t status = muster_open(&options, &session);
    if (status == MUSTER_OK) return session;
    if (Steady::now() > end) leave("open", status);
    std::this_thread::sleep_for(Millis(50));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  g_life = static_cast<std::uint64_t>(ns(Steady::now()));
  World world;
  world.seed = std::strtoull(argv[1], nullptr, 10);
  world.session = attached();
  muster_session_info info = MUSTER_SESSION_INFO_INIT;
  require("info", muster_session_query(world.session, &info));
  world.rank = info.rank;
  world.size = info.world_size;
  world.per_node = info.local_size;
  say("open",
      "\"rank\":" + std::to_string(info.rank) + ",\"attachments\":" + std::to_string(info.attachments));
  Rank(world).work();
}
