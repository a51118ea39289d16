// Messages of another node's engine: heads that follow this node's own, changed or not, garbage, and bytes of
// operations in pieces of any length. Between them: launches, losses, ends of epochs and abandoned
// operations.
//
// An operation succeeds only if the other node described the same one. If nodes disagree, nothing is written.
// Only the targets of this node's members are ever written. Once the other node is lost, every operation
// ends, and its memory is left alone.
#include "kernels/device/registry.hpp"
#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/promise.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/support/manual_clock.hpp"
#include "tests/transport/case_shares.hpp"
#include "tests/transport/collective_case.hpp"
#include "tests/transport/launch_once.hpp"
#include "tests/transport/span/sealed.hpp"
#include "transport/span/spanning_transport.hpp"
#include "transport/span/wire.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace muster::transport {
namespace {

using span::HeaderKind;
using span::OperationKey;
using span::RequestHeader;

constexpr std::size_t kStepsMax = 64;
constexpr std::size_t kOperationsMax = 6;  // in flight
constexpr std::int32_t kRanks = 3;
constexpr std::int32_t kRemote = 1;  // the member on the other node
constexpr std::uint64_t kGroup = 7;
constexpr std::uint64_t kCountMax = 3000;
constexpr std::size_t kArenaMax = std::size_t{1} << 20;
constexpr MessageTag kNumbers = (MessageTag{1} << 36) - 1;  // of a tag; above it the generation
constexpr int kTurnsMax = 20'000;

// The way to the other node.
//
// Owns    what was sent, until the fuzzer has it end.
// Thread  one.
// Bound   -
// Fails   never by itself.
class Way final : public Network {
 public:
  struct Posted {
    MessageTag tag = 0;
    WritableBytes into;
    Transfer* transfer = nullptr;
  };

  Bytes address() const noexcept override { return {}; }
  Result<std::unique_ptr<Endpoint>> connect(NodeIndex, Bytes) override {
    return std::make_unique<End>(*this);
  }
  Result<std::unique_ptr<RegisteredMemory>> register_memory(WritableBytes) override {
    return fail(Code::kUnsupported, "no memory is registered here");
  }
  std::size_t progress() override {
    const std::size_t count = ended_.size();
    for (std::size_t i = 0; i < count; ++i) {
      const auto [transfer, status, bytes] = std::move(ended_.front());
      ended_.pop_front();
      transfer->done(status, bytes);
    }
    return count;
  }
  bool arm() override { return ended_.empty(); }
  int descriptor() const noexcept override { return -1; }
  std::size_t freed_on_close_from() const noexcept override { return SIZE_MAX; }
  std::string describe() const override { return "a fuzzer"; }

  // A message has come for that receive.
  void come(std::size_t at, Bytes message) {
    const Posted receive = posted_[at];
    posted_.erase(posted_.begin() + static_cast<std::ptrdiff_t>(at));
    const bool fits = message.size() <= receive.into.size();
    if (fits && !message.empty()) std::memcpy(receive.into.data(), message.data(), message.size());
    ended_.push_back({receive.transfer, fits ? Status() : failure(Code::kProtocol, "it is longer"),
                      fits ? message.size() : 0});
  }
  // Indexes of the posted receives for heads, or of all others.
  std::vector<std::size_t> posted(bool heads) const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < posted_.size(); ++i)
      if (((posted_[i].tag & kNumbers) == 0) == heads) found.push_back(i);
    return found;
  }
  std::size_t room(std::size_t at) const { return posted_[at].into.size(); }
  // Requests that this node has sent.
  std::vector<std::vector<std::byte>> take_requests() { return std::exchange(requests_, {}); }

 private:
  struct Ended {
    Transfer* transfer = nullptr;
    Status status;
    std::size_t bytes = 0;
  };
  class End final : public Endpoint {
   public:
    explicit End(Way& way) : way_(way) {}
    ~End() override {
      for (const Posted& each : std::exchange(way_.posted_, {}))
        way_.ended_.push_back({each.transfer, failure(Code::kAborted, "the connection was closed"), 0});
    }
    NodeIndex peer() const noexcept override { return NodeIndex(1); }
    Status status() const override { return {}; }
    Status send(MessageTag tag, Bytes from, Transfer& transfer) override {
      const auto said = (tag & kNumbers) == 0 ? span::unseal(from) : std::nullopt;
      if (said && read_head<HeaderKind>(*said) == HeaderKind::kRequest)
        way_.requests_.emplace_back(said->begin(), said->end());
      way_.ended_.push_back({&transfer, {}, from.size()});
      return {};
    }
    Status receive(MessageTag tag, WritableBytes into, Transfer& transfer) override {
      way_.posted_.push_back({tag, into, &transfer});
      return {};
    }
    Result<std::unique_ptr<RemoteMemory>> open_memory(Bytes) override {
      return fail(Code::kUnsupported, "no memory is open here");
    }
    Status put(Bytes, const RemoteMemory&, std::uint64_t, Transfer&) override { return refused(); }
    Status get(WritableBytes, const RemoteMemory&, std::uint64_t, Transfer&) override { return refused(); }
    Status flush(Transfer&) override { return refused(); }

   private:
    static Status refused() { return failure(Code::kUnsupported, "messages alone"); }
    Way& way_;
  };

  std::vector<Posted> posted_;
  std::deque<Ended> ended_;
  std::vector<std::vector<std::byte>> requests_;
};

// The content of an operation's memory before it. It is made once: drawing it anew took most of an execution.
Bytes untouched(std::size_t bytes) {
  static const std::vector<std::byte> drawn = [] {
    std::vector<std::byte> made(kArenaMax);
    std::mt19937 random(1);
    for (std::byte& each : made) each = std::byte(random() & 0xff);
    return made;
  }();
  MUSTER_PROMISE(bytes <= drawn.size());
  return Bytes(drawn).first(bytes);
}

// The workers of all executions: a transport leaves no task on them.
device::Pool& workers() {
  static const std::unique_ptr<device::Pool> pool = device::Pool::open_manual({});
  return *pool;
}
device::Device& host_device() {
  static const std::unique_ptr<device::Device> opened = *device::open({}, workers());
  return *opened;
}

// An operation that this node has launched. Its memory goes as soon as it is over.
struct Running {
  OperationKey key;
  test::Shape shape;
  std::vector<std::byte> arena;
  std::vector<Share> shares;
  std::vector<Signature> signatures;
  StepOutcome outcome;
  std::vector<std::byte> request;  // this node's; empty: it has sent none
};

// Owns    this node's transport, and the operations on it.
// Thread  one.
// Bound   kStepsMax steps, kOperationsMax operations.
// Fails   a broken promise.
class Node {
 public:
  explicit Node(fuzz::Bytes& bytes) : bytes_(bytes) {
    auto way = std::make_unique<Way>();
    way_ = way.get();
    SpanningOptions options{.nodes = {"a", "b"}, .here = NodeIndex(0), .reproducible = bytes_.flag()};
    if (bytes_.flag()) options.direct_from_bytes = 1;
    transport_ = spanning_transport(std::move(way), options, clock_);
    factory().use([] {});
    Span group;
    group.group = kGroup;
    group.nodes = {NodeIndex(0), NodeIndex(1)};
    group.node_of = {0, 1, 0};
    communicator_ = *factory().open(group, std::array{&host_device(), &host_device()});
    connect();
  }

  void run() {
    for (std::size_t step = 0; step < kStepsMax && !bytes_.empty(); ++step) {
      one_step();
      turn();
    }
    links().lose(NodeIndex(1), failure(Code::kPeerLost, "it is gone"));
    for (int i = 0; !running_.empty(); ++i) {
      MUSTER_PROMISE(i < kTurnsMax);
      turn();
    }
  }

 private:
  CommunicatorFactory& factory() { return *transport_.factories.front(); }
  JobLinks& links() { return *transport_.links; }
  void connect() { MUSTER_PROMISE(links().connect(NodeIndex(1), {}, generation_++).ok()); }

  void turn() {
    static_cast<void>(factory().progress());
    while (workers().run_once() > 0) {
    }
    static_cast<void>(factory().progress());
    for (auto& request : way_->take_requests()) {
      const auto head = read_head<RequestHeader>(request);
      if (Running* const one = find(span::key_of(*head))) one->request = std::move(request);
    }
    links().take_ended([this](const EpochEnd& end) { epoch_ = std::max(epoch_, end.epoch + 1); });
    links().take_lost([](const JobLinks::Lost&) {});
    links().take_messages([](NodeIndex, std::uint32_t, Bytes) {});
    for (auto one = running_.begin(); one != running_.end();) {
      if (!(*one)->outcome.over()) {
        ++one;
        continue;
      }
      check(**one);
      one = running_.erase(one);
    }
  }
  void check(Running& one) const {
    const Status* const why = one.outcome.failure();
    const Bytes before = untouched(one.arena.size());
    if (why == nullptr) MUSTER_PROMISE(was_meant(one));
    if (why != nullptr && why->code() == Code::kMismatch) MUSTER_PROMISE(same(one.arena, before));
    const std::size_t element = std::max<std::size_t>(1, dtype_bytes(one.shape.collective.dtype));
    for (const Share& share : one.shares) {
      const std::size_t bytes = extent_of(share.target_blocks) * element;
      if (share.target != nullptr && bytes > 0)
        std::memcpy(share.target, &before[static_cast<std::size_t>(share.target - one.arena.data())], bytes);
    }
    MUSTER_PROMISE(same(one.arena, before));
  }
  static bool same(Bytes a, Bytes b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
  }

  // The other node has said the same of it.
  bool was_meant(const Running& one) const {
    const auto mine = read_head<RequestHeader>(one.request);
    return mine && std::any_of(said_.begin(), said_.end(), [&](const RequestHeader& theirs) {
             Hash128 balance = mine->balance;
             balance += theirs.balance;
             return span::key_of(theirs) == span::key_of(*mine) && theirs.common == mine->common &&
                    balance.zero();
           });
  }

  Running* find(const OperationKey& key) {
    const auto one =
        std::find_if(running_.begin(), running_.end(), [&](const auto& each) { return each->key == key; });
    return one == running_.end() ? nullptr : one->get();
  }

  void one_step() {
    switch (bytes_.below(10)) {
      case 0:
      case 1:
        return launch();
      case 2:
      case 3:
      case 4:
        return answer();
      case 5:
        return say_of_one();
      case 6:
        return say(bytes_.some(bytes_.below(200)), bytes_.flag());
      case 7:
        return bulk();
      case 8:
        clock_.advance(std::chrono::milliseconds(bytes_.below(256)));
        return links().stay_alive();
      default:
        return disturb();
    }
  }

  void launch() {
    if (running_.size() == kOperationsMax) return;
    auto one = std::make_unique<Running>();
    const muster_op op = test::kOps[bytes_.below(test::kOps.size())];
    if (has_faces(op)) return;
    const muster_dtype dtype = bytes_.flag() ? MUSTER_F32 : MUSTER_U8;
    const std::uint64_t count = bytes_.flag() ? bytes_.below(256) : bytes_.number() % kCountMax;
    one->shape = test::shape_of(op, dtype, has_reduction(op) ? MUSTER_SUM : 0, kRanks, count,
                                bytes_.flag() ? test::Place::kApart : test::Place::kInPlace);
    Collective& c = one->shape.collective;
    c.root = has_root(op) || is_transfer(op) ? static_cast<std::int32_t>(bytes_.below(kRanks)) : c.root;
    if (is_transfer(op)) {
      c.receiver = c.root == kRemote ? 0 : kRemote;
      c.tag = static_cast<std::uint32_t>(bytes_.below(2));
    }
    std::size_t bytes = 0;
    std::vector<test::Placement> here = test::placements_of(one->shape, &bytes);
    const Bytes before = untouched(bytes);
    one->arena.assign(before.begin(), before.end());
    std::erase_if(here, [](const test::Placement& member) { return member.index == kRemote; });
    one->shares = *test::shares_of(c, kRanks, here, one->arena.data());
    for (const Share& share : one->shares) one->signatures.push_back(signature_of(c, share, kRanks));
    std::vector<LocalMember> members;
    for (std::size_t i = 0; i < one->shares.size(); ++i)
      members.push_back({&one->shares[i], nullptr, bases_of(one->shares[i]), &one->signatures[i]});
    MatchKey key{{kGroup, 1, -1, -1}, epoch_, ++number_};
    if (is_transfer(op)) key.place = {kGroup, 0, c.root, c.receiver};
    const std::uint32_t tag = is_transfer(op) ? c.tag : 0;
    MUSTER_PROMISE(test::launch_once(*communicator_, c, members, key, one->outcome).ok());
    one->key = {key.place, tag, key.epoch, key.number};
    keys_.push_back(one->key);
    running_.push_back(std::move(one));
  }

  // The other node's request for an operation of this one, as it should be or changed.
  void answer() {
    if (running_.empty()) return;
    const auto at = static_cast<std::ptrdiff_t>(bytes_.below(running_.size()));
    const std::vector<std::byte>& request = (*std::next(running_.begin(), at))->request;
    if (request.empty()) return;
    auto head = *read_head<RequestHeader>(request);
    Hash128 balance;
    balance -= head.balance;
    head.balance = balance;
    head.first_tag = (MessageTag{generation_ - 1} << 36) + 1 + bytes_.below(4);
    head.direct = bytes_.flag() ? 1 : 0;
    const std::size_t with = request.size() - sizeof head;
    std::vector<std::byte> payload(bytes_.below(4) == 0 ? bytes_.below(300) : with);
    std::vector<std::byte> message = span::message_of(head, payload);
    for (std::uint64_t changes = bytes_.below(4) == 1 ? 1 + bytes_.below(3) : 0; changes > 0; --changes)
      message[bytes_.below(message.size())] = std::byte(bytes_.take<std::uint8_t>());
    say_bytes(std::move(message), true);
  }
  // Ready, a refusal or an end, of an operation or of anything.
  void say_of_one() {
    OperationKey key;
    if (!keys_.empty()) key = keys_[bytes_.below(keys_.size())];
    if (bytes_.below(4) == 0) key.epoch += bytes_.below(3);
    const Status why(bytes_.flag() ? Code::kTimeout : Code::kPeerLost, "so it is");
    switch (bytes_.below(3)) {
      case 0:
        return say_bytes(span::message_of(span::head_of<span::ReadyHeader>(key), {}), true);
      case 1:
        return say_bytes(
            span::refusal_of(key, why, span::Standing{static_cast<std::uint32_t>(bytes_.below(4))}), true);
      default:
        return say_bytes(span::message_of_end({kGroup, key.epoch, why.code(), 1, bytes_.flag(), "over"}),
                         true);
    }
  }
  void say(std::span<const std::uint8_t> raw, bool sealed) {
    const auto* const data = reinterpret_cast<const std::byte*>(raw.data());
    say_bytes({data, data + raw.size()}, sealed);
  }
  void say_bytes(std::vector<std::byte> message, bool sealed) {
    const auto heads = way_->posted(true);
    if (heads.empty()) return;
    const auto head = read_head<RequestHeader>(message);
    if (sealed && head && head->kind == HeaderKind::kRequest) said_.push_back(*head);
    if (sealed) message = test::sealed(std::move(message));
    way_->come(heads.front(), message);
  }
  void bulk() {
    const auto others = way_->posted(false);
    if (others.empty()) return;
    const std::size_t at = others[bytes_.below(others.size())];
    const std::size_t room = way_->room(at);
    const std::size_t length = bytes_.below(4) == 0 ? bytes_.below(room + 2) : room;
    way_->come(at, std::vector<std::byte>(length, std::byte(bytes_.take<std::uint8_t>())));
  }

  void disturb() {
    switch (bytes_.below(4)) {
      case 0:
        if (!running_.empty()) communicator_->cancel(running_.front()->outcome);
        return;
      case 1:
        links().end({kGroup, epoch_, Code::kAborted, 0, false, "given up"});
        ++epoch_;
        return;
      case 2:
        links().lose(NodeIndex(1), failure(Code::kPeerLost, "the way is cut"));
        return;
      default:
        connect();
    }
  }

  fuzz::Bytes& bytes_;
  muster::test::ManualClock clock_;
  Way* way_ = nullptr;
  std::list<std::unique_ptr<Running>> running_;
  std::vector<OperationKey> keys_;   // of all that were launched
  std::vector<RequestHeader> said_;  // by the other node
  JobTransport transport_;
  std::unique_ptr<Communicator> communicator_;
  std::uint64_t epoch_ = 1;
  std::uint64_t number_ = 0;
  std::uint32_t generation_ = 0;
};

}  // namespace
}  // namespace muster::transport

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  muster::fuzz::Bytes bytes(data, size);
  muster::transport::Node(bytes).run();
  return 0;
}
