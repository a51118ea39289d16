// Two ranks of a job against an engine in this process, without threads and with time that moves when told
// to: any messages, commands, lies in the ring and in the direct segment, comings and goings, in any order.
//
// Whatever they do, the engine lives; a start that was put into the ring in good order has its verdict once
// every deadline has passed; and when both ranks have left, all their memory has been given back.
#include "api/shm/message.hpp"
#include "api/shm/tail.hpp"
#include "daemon/engine/job/conductor.hpp"
#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/promise.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/support/manual_clock.hpp"

#include <set>

#include <muster/kernels.h>
#include <unistd.h>

namespace muster::engine {
namespace {

using fuzz::Bytes;
using shm::MessageKind;

constexpr std::uint32_t kRanks = 2;
constexpr std::uint64_t kEpoch = 77;
constexpr int kStepsMax = 48;
constexpr int kTurnsMax = 20000;  // of an engine that has come to rest long before
// Two of them pass between turns without the engine taking that for lateness of its own.
constexpr Nanos kDeadline = std::chrono::milliseconds(90);
constexpr std::uint64_t kBufferBytesMax = 8192;

control::JobSpec job() {
  control::JobSpec spec;
  spec.name = "job";
  spec.world = kRanks;
  spec.mesh = "dp_shard=2";
  spec.epoch = kEpoch;
  spec.workers = 1;
  spec.deadline = kDeadline;
  spec.arena_bytes_max = std::uint64_t{256} << 10;
  spec.segment_bytes = std::uint64_t{64} << 10;
  spec.buffers_max = 8;
  spec.plans_max = 8;
  spec.groups_made_max = 4;
  return spec;
}

// The state of a client.
struct Client {
  Session* session = nullptr;
  std::optional<shm::SubmissionView> submission;
  std::optional<shm::CompletionView> completion;
  std::optional<shm::RingWriter<>> ring;
  std::optional<shm::CompletionReader> reader;
  shm::Mapping direct;
  std::vector<std::uint64_t> buffers;
  std::vector<std::uint64_t> plans;
  std::vector<std::uint64_t> groups;  // that it has made
  std::vector<std::uint64_t> meshes;
  std::vector<std::uint64_t> points;  // of starts
  std::uint64_t submitted[shm::kLanesMax] = {};
  std::set<std::uint32_t> lanes{0, 1, 2, 3, 4, 5, 6};  // that it has
  bool honest = true;                                  // its ring holds what it should
};

// An engine and its time. Most inputs take it as the one before has left it, both ranks gone, since making
// one takes longer than all that is done with it; one in sixteen has a fresh one, in which no group has ended
// yet.
struct Node {
  Node() {
    auto made = Engine::create(job(), clock, nullptr, Engine::Pooling::kByHand);
    MUSTER_PROMISE(made);
    engine = *std::move(made);
    clock.advance(std::chrono::seconds(1));
  }
  muster::test::ManualClock clock;
  std::unique_ptr<Engine> engine;
};

Node& node(bool fresh) {
  static std::unique_ptr<Node> the_node;
  if (fresh || !the_node) the_node = std::make_unique<Node>();
  return *the_node;
}

class World {
 public:
  explicit World(Bytes& bytes) : World(bytes, node(bytes.below(16) == 1)) {}
  World(Bytes& bytes, Node& node) : bytes_(bytes), clock_(node.clock), engine_(node.engine.get()) {
    engine_->faults().expect_all();
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) attach(rank);
  }

  void run() {
    for (int step = 0; step < kStepsMax && !bytes_.empty(); ++step) {
      one_step();
      take_offenders();
    }
    settle();
    check_verdicts();
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) detach(rank);
    settle();
    MUSTER_PROMISE(engine_->reclaim() == 0);
    for (const auto& report : engine_->report())
      MUSTER_PROMISE(!report.attached && report.arena_used_bytes == 0);
    MUSTER_PROMISE(engine_->groups().made().empty());
    static_cast<void>(engine_->recorder().end(""));
  }

 private:
  Client& client(std::uint32_t rank) { return clients_[rank]; }

  void attach(std::uint32_t rank) {
    auto attached = engine_->attach(Rank(rank), 1);
    Client& c = clients_[rank];
    MUSTER_PROMISE(attached.has_value() == (c.session == nullptr));
    if (!attached) return;
    c = Client{};
    c.session = attached->session;
    const auto copy = [](int descriptor) { return shm::Descriptor(::dup(descriptor)); };
    c.submission = *shm::SubmissionView::attach(copy(c.session->submission().descriptor().get()));
    c.completion = *shm::CompletionView::attach(copy(c.session->page().descriptor().get()));
    c.ring.emplace(shm::ring_writer(*c.submission, *c.completion));
    c.reader.emplace(c.completion->page(), c.submission->writable_header());
    c.direct = *shm::Mapping::map(copy(attached->direct_segment), attached->welcome.direct_bytes,
                                  shm::Mapping::Access::kReadWrite);
  }
  void detach(std::uint32_t rank) {
    if (client(rank).session == nullptr) return;
    engine_->detach(Rank(rank), "left");
    client(rank) = Client{};
  }
  // As the conductor does.
  void take_offenders() {
    while (const auto offender = engine_->faults().take_offender()) {
      MUSTER_PROMISE(!client(offender->first.value).honest);
      detach(offender->first.value);
    }
    engine_->reclaim();
    MUSTER_PROMISE(engine_->health().ok());
  }
  // Until nothing moves any more, also after every deadline.
  void settle() {
    for (int round = 0; round < 3; ++round) {
      clock_.advance(2 * kDeadline);
      int turns = 0;
      for (int idle = 0; idle < 3; ++turns) {
        idle = engine_->run_once() == 0 ? idle + 1 : 0;
        MUSTER_PROMISE(turns < kTurnsMax);
      }
      take_offenders();
    }
  }
  void check_verdicts() {
    for (Client& c : clients_) {
      if (c.session == nullptr || !c.honest) continue;
      MUSTER_PROMISE(c.reader->closed() == Code::kOk);
      for (const std::uint64_t point : c.points) {
        const Code code = c.reader->test(point);
        MUSTER_PROMISE(code != Code::kPending && code != Code::kProtocol);
      }
    }
  }

  // ---- steps -----------------------------------------------------------------------------------
  void one_step() {
    const auto rank = static_cast<std::uint32_t>(bytes_.below(kRanks));
    const auto what = bytes_.below(16);
    if (what == 0) return attach(rank);
    if (what == 1) return detach(rank);
    if (what == 2) return clock_.advance(std::chrono::milliseconds(bytes_.take<std::uint16_t>()));
    if (what == 3) return engine_->faults().absent(Rank(static_cast<std::uint32_t>(bytes_.below(4))), "gone");
    if (what == 4) return engine_->faults().expect_all();
    if (what <= 6) {
      for (auto n = bytes_.below(16); n > 0; --n) static_cast<void>(engine_->run_once());
      return;
    }
    if (client(rank).session == nullptr) return;
    if (what <= 9) return command(client(rank));
    if (what == 10) return lie(client(rank));
    message(rank);
  }

  std::uint64_t any_of(const std::vector<std::uint64_t>& handles) {
    const auto which = bytes_.below(16);
    if (which < handles.size()) return handles[which];
    if (which < 12) return handles.empty() ? 0 : handles.back();
    return bytes_.number();
  }
  std::uint64_t any_group(const Client& c) {
    const auto which = bytes_.below(5);
    if (which < 2) return Handle(0, kEpoch).bits;
    if (which == 4) return any_of(c.groups);
    return which == 2 ? MUSTER_GROUP_SELF : bytes_.number();
  }

  // ---- the ring --------------------------------------------------------------------------------
  void command(Client& c) {
    shm::Command command;
    const auto how = bytes_.below(8);
    command.kind = how < 5    ? shm::Command::Kind::kStart
                   : how == 5 ? shm::Command::Kind::kStartAt
                   : how == 6 ? shm::Command::Kind::kResetLane
                              : shm::Command::Kind::kSignal;
    const bool starts = how < 6;
    command.lane = static_cast<std::uint16_t>(bytes_.below(MUSTER_LANE_CLASSES + 3));
    if (!c.lanes.contains(command.lane)) c.honest = false;
    if (starts) {
      command.plan = any_of(c.plans);
      if (c.session->plans().find(Handle(command.plan)) == nullptr) c.honest = false;
      for (auto& wait : command.waits) wait = bytes_.below(4) == 0 ? any_point(c) : 0;
      command.deadline_ns = bytes_.flag() ? 0 : bytes_.take<std::uint32_t>() / 32;
      if (command.kind == shm::Command::Kind::kStartAt) give_offsets(c, command);
    } else if (command.kind == shm::Command::Kind::kSignal) {
      c.honest =
          false;  // a timeline that goes down is the end of a session; which may be, is not followed here
      command.lane = static_cast<std::uint16_t>(bytes_.below(18));
      command.plan = bytes_.number();
    }
    // A client of ours resets a lane that it has seen stopped, and keeps its verdicts then; who does not may
    // never learn of them.
    if (command.kind == shm::Command::Kind::kResetLane) {
      bool stopped = false;
      if (c.reader->stopped(command.lane, &stopped) != Code::kOk || !stopped) c.honest = false;
    }
    if (c.ring->push(command) != Code::kOk) return;
    if (command.kind == shm::Command::Kind::kResetLane)
      static_cast<void>(c.reader->remember_reset(command.lane, c.submitted[command.lane]));
    if (!starts) return;
    c.points.push_back(shm::make_point(command.lane, ++c.submitted[command.lane]));
  }
  // Honest offsets are those that the plan takes; a client of ours sends no others.
  void give_offsets(Client& c, shm::Command& command) {
    const auto offset = [&] {
      return bytes_.flag() ? bytes_.below(kBufferBytesMax / 8) * 8 : bytes_.number();
    };
    const std::uint64_t source = offset();
    const Rooms::Offsets to{source, bytes_.flag() ? source : offset()};
    command.waits[shm::kSourceOffsetAt] = to.source;
    command.waits[shm::kTargetOffsetAt] = to.target;
    const scheduler::Plan* const plan = c.session->plans().find(Handle(command.plan));
    const scheduler::CollectiveWork* const work = plan == nullptr ? nullptr : plan->collective();
    if (work == nullptr || !work->rooms.allow(work->collective, work->share, to)) c.honest = false;
  }
  // A point of an earlier start, of a start to come, or of a timeline of the client; or any number.
  std::uint64_t any_point(Client& c) {
    const auto how = bytes_.below(4);
    if (how == 0 && !c.points.empty()) return c.points[bytes_.below(c.points.size())];
    if (how == 1)
      return shm::make_point(static_cast<std::uint32_t>(bytes_.below(MUSTER_LANE_CLASSES)), bytes_.below(8));
    if (how == 2) return shm::make_point(shm::kClientTimelineFirst, bytes_.below(8));
    c.honest = false;
    return bytes_.number();
  }
  // Anything at all in memory that the engine reads.
  void lie(Client& c) {
    if (bytes_.flag()) {
      c.honest = false;
      auto* words = reinterpret_cast<std::uint64_t*>(c.submission->writable_header());
      const std::size_t count = shm::kSubmissionBytes / sizeof *words;
      const std::size_t at = bytes_.flag() ? 0 : bytes_.take<std::uint16_t>() % count;
      shm::Published<std::uint64_t>(words + at).store(bytes_.number());
      return;
    }
    // Behind the stages, which the engine does not look into, lie the member regions.
    auto* words = reinterpret_cast<std::uint64_t*>(c.direct.writable() + shm::kMemberRegionsOffset);
    const std::size_t count = (c.direct.size() - shm::kMemberRegionsOffset) / sizeof *words;
    const std::size_t at = bytes_.take<std::uint16_t>() % count;
    shm::Published<std::uint64_t>(words + at).store(bytes_.flag() ? any_of(c.plans) : bytes_.number());
  }

  // ---- messages --------------------------------------------------------------------------------
  template<class T>
  T with(MessageKind kind, std::size_t tail = 0) {
    return shm::make_message<T>(kind, 5, tail);
  }
  template<class T>
  std::optional<Answer> ask(std::uint32_t rank, const T& message) {
    return ask_bytes(rank, shm::bytes_of(message));
  }
  std::optional<Answer> ask_bytes(std::uint32_t rank, std::span<const std::byte> message) {
    auto answer = serve(*engine_, *client(rank).session, message);
    if (!answer) {
      MUSTER_PROMISE(answer.error().code() == Code::kProtocol);
      detach(rank);
      return std::nullopt;
    }
    const auto header = shm::checked_header(answer->bytes);
    MUSTER_PROMISE(header);
    if (answer->goodbye) {
      detach(rank);
      return std::nullopt;
    }
    return *std::move(answer);
  }
  void note(std::vector<std::uint64_t>& handles, const std::optional<Answer>& answer, MessageKind granted) {
    if (!answer || shm::checked_header(answer->bytes)->kind != granted) return;
    std::uint64_t handle = 0;
    std::memcpy(&handle, answer->bytes.data() + sizeof(shm::MessageHeader), sizeof handle);
    handles.push_back(handle);
  }

  void message(std::uint32_t rank) {
    Client& c = client(rank);
    switch (bytes_.below(10)) {
      case 8:
        return make(rank);
      case 9:
        return note(c.plans, ask_bytes(rank, any_kernel(c, Lengths::kAny)), MessageKind::kPlanGrant);
      case 0: {
        auto request = with<shm::BufferAlloc>(MessageKind::kBufferAlloc);
        request.bytes = bytes_.flag() ? bytes_.number() * 16 : kBufferBytesMax;
        return note(c.buffers, ask(rank, request), MessageKind::kBufferGrant);
      }
      case 1:
        return note(c.plans, ask_bytes(rank, any_kernel(c, Lengths::kTrue)), MessageKind::kPlanGrant);
      case 2:
      case 3:
        return collective(rank);
      case 4:
        return by_handle(rank);
      case 5:
        return direct(rank);
      case 6:
        return bytes_.flag() ? plain(rank) : lane(rank);
      default: {
        shm::MessageHeader header;
        header.kind = static_cast<MessageKind>(bytes_.take<std::uint8_t>());
        const auto body = bytes_.some(bytes_.below(200));
        std::vector<std::byte> datagram(sizeof header + body.size());
        header.bytes = static_cast<std::uint32_t>(datagram.size());
        std::memcpy(datagram.data(), &header, sizeof header);
        if (!body.empty()) std::memcpy(datagram.data() + sizeof header, body.data(), body.size());
        static_cast<void>(ask_bytes(rank, datagram));
      }
    }
  }
  enum class Lengths { kTrue, kAny };  // of lists, as the message says
  std::vector<std::byte> any_kernel(Client& c, Lengths lengths) {
    const auto view = [&] {
      return muster_view2(any_of(c.buffers), bytes_.below(64) * 8, MUSTER_F32,
                          static_cast<std::int64_t>(bytes_.below(9)),
                          static_cast<std::int64_t>(bytes_.below(9)));
    };
    const muster_kernel kernel = muster_fill(view(), 1.0);
    const std::vector<std::byte> tail = shm::tail_for(kernel);
    shm::PlanKernel request = shm::message_of(kernel);
    request.header = with<shm::PlanKernel>(MessageKind::kPlanKernel, tail.size()).header;
    if (lengths == Lengths::kAny) {
      request.tensors = static_cast<std::uint32_t>(bytes_.number());
      request.ints = static_cast<std::uint32_t>(bytes_.number());
      request.reals = static_cast<std::uint32_t>(bytes_.number());
    }
    std::vector<std::byte> datagram(sizeof request);
    std::memcpy(datagram.data(), &request, sizeof request);
    datagram.insert(datagram.end(), tail.begin(), tail.end());
    return datagram;
  }
  void collective(std::uint32_t rank) {
    Client& c = client(rank);
    const std::uint64_t entries[] = {bytes_.below(8) == 0 ? 2u : 0u, bytes_.below(16) == 0 ? 2u : 0u};
    auto request = with<shm::PlanCollective>(MessageKind::kPlanCollective,
                                             2 * (entries[0] + entries[1]) * sizeof(std::uint64_t));
    request.op = static_cast<std::int32_t>(1 + bytes_.below(11));
    request.dtype = static_cast<std::int32_t>(1 + bytes_.below(10));
    request.redop = has_reduction(request.op) ? static_cast<std::int32_t>(1 + bytes_.below(6)) : 0;
    request.peer =
        has_root(request.op) || is_transfer(request.op) ? static_cast<std::int32_t>(bytes_.below(2)) : 0;
    request.group = any_group(c);
    request.source = {any_of(c.buffers), 0};
    request.target = {any_of(c.buffers), bytes_.flag() ? 0 : std::uint64_t{4096}};
    request.count = bytes_.below(64);
    request.source_counts = request.target_counts = static_cast<std::uint32_t>(entries[0]);
    request.source_offsets = request.target_offsets = static_cast<std::uint32_t>(entries[1]);
    std::vector<std::byte> datagram(request.header.bytes);
    std::memcpy(datagram.data(), &request, sizeof request);
    for (std::size_t at = sizeof request; at < datagram.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t value = bytes_.below(64);
      std::memcpy(datagram.data() + at, &value, sizeof value);
    }
    note(c.plans, ask_bytes(rank, datagram), MessageKind::kPlanGrant);
  }
  void by_handle(std::uint32_t rank) {
    Client& c = client(rank);
    static constexpr MessageKind kKinds[] = {MessageKind::kBufferFree,  MessageKind::kPlanDestroy,
                                             MessageKind::kGroupAbort,  MessageKind::kGroupQuery,
                                             MessageKind::kDirectGroup, MessageKind::kGroupFree,
                                             MessageKind::kMeshFree};
    const MessageKind kind = kKinds[bytes_.below(std::size(kKinds))];
    if (kind == MessageKind::kGroupAbort) {
      auto request = with<shm::GroupAbort>(kind);
      request.group = any_group(c);
      std::memset(request.reason, 'x', sizeof request.reason - (request.group % 2));
      return static_cast<void>(ask(rank, request));
    }
    auto request = with<shm::HandleMessage>(kind);
    request.handle = kind == MessageKind::kBufferFree    ? any_of(c.buffers)
                     : kind == MessageKind::kPlanDestroy ? any_of(c.plans)
                     : kind == MessageKind::kMeshFree    ? any_of(c.meshes)
                                                         : any_group(c);
    static_cast<void>(ask(rank, request));
  }
  void make(std::uint32_t rank) {
    Client& c = client(rank);
    if (bytes_.below(3) == 0) {
      static constexpr const char* kMeshes[] = {"dp_shard=2", "tp=2", "tp=-1", "dp_shard=1", "pp=3", "?"};
      auto request = with<shm::MeshMake>(MessageKind::kMeshMake);
      request.group = any_group(c);
      const std::string_view text = kMeshes[bytes_.below(std::size(kMeshes))];
      text.copy(request.mesh, sizeof request.mesh - 1);
      return note(c.meshes, ask(rank, request), MessageKind::kMeshGrant);
    }
    if (bytes_.below(4) == 0) {
      auto request = with<shm::GroupShrink>(MessageKind::kGroupShrink);
      request.group = any_group(c);
      request.gives_up = bytes_.flag() ? 1 : 0;
      return note(c.groups, ask(rank, request), MessageKind::kGroupGrant);
    }
    if (bytes_.below(4) == 0) return name_dims(rank);
    const std::uint64_t ranks = bytes_.below(4);
    auto request = with<shm::GroupMake>(MessageKind::kGroupMake, ranks * sizeof(std::int32_t));
    request.ranks = static_cast<std::uint32_t>(bytes_.below(8) == 0 ? bytes_.number() : ranks);
    request.name[0] = static_cast<char>('a' + bytes_.below(4));
    std::vector<std::byte> datagram(request.header.bytes);
    std::memcpy(datagram.data(), &request, sizeof request);
    for (std::size_t at = sizeof request; at < datagram.size(); at += sizeof(std::int32_t)) {
      const auto value = static_cast<std::int32_t>(bytes_.below(4)) - 1;
      std::memcpy(datagram.data() + at, &value, sizeof value);
    }
    note(c.groups, ask_bytes(rank, datagram), MessageKind::kGroupGrant);
  }
  void name_dims(std::uint32_t rank) {
    static constexpr const char* kDims[] = {"dp_shard", "tp", "pp", "dp", "efsdp", "fsdp", "?", "a"};
    Client& c = client(rank);
    const std::uint64_t mesh = bytes_.flag() ? any_of(c.meshes) : 0;
    if (bytes_.below(4) == 0) {
      auto request = with<shm::MeshDeadline>(MessageKind::kMeshDeadline);
      request.mesh = mesh;
      request.deadline_ns =
          static_cast<std::int64_t>(bytes_.below(static_cast<std::uint64_t>(kDeadline.count()))) - 1;
      static_cast<void>(ask(rank, request));
      return;
    }
    const MessageKind kind = bytes_.flag() ? MessageKind::kMeshFlatten : MessageKind::kMeshSlice;
    const std::uint64_t dims = bytes_.below(4);
    auto request = with<shm::MeshNames>(kind, dims * sizeof(shm::DimName));
    request.mesh = mesh;
    request.dims = static_cast<std::uint32_t>(bytes_.below(8) == 0 ? bytes_.number() : dims);
    request.name[0] = static_cast<char>('a' + bytes_.below(4));
    std::vector<std::byte> datagram(request.header.bytes);
    std::memcpy(datagram.data(), &request, sizeof request);
    for (std::size_t at = sizeof request; at < datagram.size(); at += sizeof(shm::DimName)) {
      shm::DimName dim;
      const std::string_view text = kDims[bytes_.below(std::size(kDims))];
      text.copy(dim.text, sizeof dim.text - 1);
      std::memcpy(datagram.data() + at, &dim, sizeof dim);
    }
    const auto answer = ask_bytes(rank, datagram);
    if (kind == MessageKind::kMeshSlice) note(c.meshes, answer, MessageKind::kMeshGrant);
  }
  void direct(std::uint32_t rank) {
    static constexpr MessageKind kKinds[] = {MessageKind::kDirectEnd, MessageKind::kDirectOverdue,
                                             MessageKind::kDirectDisagree};
    const std::size_t which = bytes_.below(std::size(kKinds) + 1);
    if (which == std::size(kKinds)) return interrupt(rank);
    auto request = with<shm::DirectMessage>(kKinds[which]);
    request.group = any_group(client(rank));
    request.epoch = bytes_.number();
    request.position = bytes_.number();
    request.phase = bytes_.number();
    request.plan = any_of(client(rank).plans);
    request.kind = static_cast<std::uint32_t>(bytes_.below(5));
    request.peer = static_cast<std::uint32_t>(bytes_.below(3));
    static_cast<void>(ask(rank, request));
  }
  void interrupt(std::uint32_t rank) {
    auto request = with<shm::InterruptMessage>(MessageKind::kInterrupted);
    request.group = any_group(client(rank));
    request.epoch = bytes_.number();
    request.lane = static_cast<std::uint32_t>(bytes_.below(MUSTER_LANE_CLASSES + 2));
    static_cast<void>(ask(rank, request));
  }
  void lane(std::uint32_t rank) {
    Client& c = client(rank);
    if (bytes_.flag()) {
      auto request = with<shm::LaneOpen>(MessageKind::kLaneOpen);
      request.lane_class = static_cast<std::uint32_t>(bytes_.below(MUSTER_LANE_CLASSES + 1));
      request.name[0] =
          static_cast<char>(bytes_.flag() ? 'a' + bytes_.below(3) : bytes_.take<std::uint8_t>());
      const auto answer = ask(rank, request);
      if (!answer || shm::checked_header(answer->bytes)->kind != MessageKind::kLaneGrant) return;
      shm::LaneGrant grant;
      std::memcpy(&grant, answer->bytes.data(), sizeof grant);
      MUSTER_PROMISE(grant.lane >= MUSTER_LANE_CLASSES && grant.lane < shm::kLanesMax);
      MUSTER_PROMISE(c.lanes.insert(grant.lane).second);
      if (request.name[0] == '\0') c.honest = false;  // collectives do not match there
      return;
    }
    auto request = with<shm::LaneGrant>(MessageKind::kLaneClose);
    request.lane = static_cast<std::uint32_t>(bytes_.below(MUSTER_LANE_CLASSES + 3));
    const auto answer = ask(rank, request);
    if (answer && shm::checked_header(answer->bytes)->kind == MessageKind::kDone) c.lanes.erase(request.lane);
  }
  void plain(std::uint32_t rank) {
    switch (bytes_.below(6)) {
      case 0:
        static_cast<void>(ask(rank, with<shm::Plain>(MessageKind::kEventOpen)));
        return;
      case 1:
        static_cast<void>(ask(rank, with<shm::Plain>(MessageKind::kGoodbye)));
        return;
      case 2: {
        auto request = with<shm::MeshQuery>(MessageKind::kMeshQuery);
        request.mesh = bytes_.flag() ? any_of(client(rank).meshes) : 0;
        const auto dim = bytes_.text(bytes_.below(sizeof request.dim + 1));
        std::copy(dim.begin(), dim.end(), request.dim);
        static_cast<void>(ask(rank, request));
        return;
      }
      case 3: {
        auto request =
            with<shm::PeerMessage>(bytes_.flag() ? MessageKind::kPeerDirect : MessageKind::kPeerArena);
        request.rank = static_cast<std::int32_t>(bytes_.below(4)) - 1;
        request.segment = static_cast<std::uint32_t>(bytes_.below(4));
        static_cast<void>(ask(rank, request));
        return;
      }
      default:
        static_cast<void>(
            ask(rank, with<shm::Plain>(bytes_.flag() ? MessageKind::kTraceEnd : MessageKind::kDone)));
    }
  }

  Bytes& bytes_;
  muster::test::ManualClock& clock_;
  Engine* engine_;
  Client clients_[kRanks];
};

}  // namespace
}  // namespace muster::engine

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  muster::fuzz::Bytes bytes(data, size);
  muster::engine::World(bytes).run();
  return 0;
}
