#include "tests/history/job_by_hand.hpp"

#include "api/base/log.hpp"
#include "api/client/session/session.hpp"
#include "daemon/engine/job/answer.hpp"
#include "daemon/engine/job/conductor.hpp"

#include <fmt/format.h>

#include <sys/socket.h>
#include <unistd.h>

namespace muster::test {
namespace {

constexpr Nanos kAnswerTime = std::chrono::hours(1);  // the conductor always answers in the end

// How a stopped process looks to the engine is no matter here.
class NoProcesses final : public engine::ProcessProbe {
 public:
  engine::ProcessId identify(std::int32_t pid) const override { return {pid, 1}; }
  engine::ProcessSight look(const engine::ProcessId&) const override { return {}; }
};

template<class T>
T sure(Result<T> result) {
  if (!result) fmt::print(stderr, "{}\n", result.error().text());
  MUSTER_ASSERT(result);
  return *std::move(result);
}

shm::Descriptor copy_of(int descriptor) {
  return shm::Descriptor(::dup(descriptor));
}

}  // namespace

JobByHand::JobByHand(std::uint32_t world, const std::string& mesh, Nanos deadline, const Clock& clock)
    : clock_(clock), seats_(world), buffer_(shm::kMessageBytesMax) {
  log::configure(log::Level::kError, log::Format::kText);
  control::JobSpec spec;
  spec.name = "job";
  spec.world = world;
  spec.mesh = mesh;
  spec.epoch = 77;
  spec.deadline = deadline;
  spec.workers = 1;
  spec.arena_bytes_max = std::uint64_t{16} << 20;
  spec.segment_bytes = std::uint64_t{1} << 20;
  spec.buffers_max = 64;
  spec.plans_max = 512;
  engine_ = sure(
      engine::Engine::create(spec, clock, std::make_unique<NoProcesses>(), engine::Engine::Pooling::kByHand));
}

JobByHand::~JobByHand() = default;

muster_session* JobByHand::attach(std::uint32_t rank, std::int32_t pid) {
  int ends[2];
  MUSTER_ASSERT(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  engine::Attached attached = sure(engine_->attach(Rank(rank), pid));
  seats_[rank] = {shm::Descriptor(ends[0]), attached.session, false};
  const shm::Welcome& welcome = attached.welcome;
  client::Attachment attachment{
      shm::Descriptor(ends[1]),
      std::move(attached.doorbell),
      sure(shm::SubmissionView::attach(copy_of(attached.session->submission().descriptor().get()))),
      sure(shm::CompletionView::attach(copy_of(attached.session->page().descriptor().get()))),
      welcome,
      "",
      kAnswerTime,
      sure(shm::Mapping::map(copy_of(attached.direct_segment), welcome.direct_bytes,
                             shm::Mapping::Access::kReadWrite)),
      sure(
          shm::Mapping::map(copy_of(attached.group_page), welcome.group_bytes, shm::Mapping::Access::kRead))};
  return sure(muster_session::create(std::move(attachment), muster_session::Mode::kPlain)).release();
}

void JobByHand::forget(muster_session* session) {
  delete session;
}

std::string JobByHand::stopped_by(std::uint32_t rank, muster_lane lane) const {
  const auto& session = *static_cast<const engine::Session*>(seats_[rank].session);
  shm::SubmissionHeader nobodys{};
  shm::CompletionReader reader(session.page().page(), &nobodys);
  const auto failure = reader.failure(lane);
  return failure ? failure->text : "";
}

void JobByHand::detach(std::uint32_t rank, const std::string& text) {
  engine_->detach(Rank(rank), text);
  seats_[rank] = {};
  engine_->reclaim();
}

std::size_t JobByHand::take_turn() {
  return engine_->run_once();
}

JobByHand::Served JobByHand::serve(std::uint32_t rank) {
  Seat& seat = seats_[rank];
  if (!seat.socket.valid()) return Served::kNothing;
  const auto message = shm::receive_message(seat.socket, buffer_);
  if (!message) return Served::kNothing;
  if (message->bytes == 0) return seat.goodbye ? Served::kGoodbye : Served::kNothing;
  engine_->heard(Rank(rank));
  auto answer = sure(engine::serve(*engine_, *static_cast<engine::Session*>(seat.session),
                                   std::span(buffer_).first(message->bytes)));
  seat.goodbye = seat.goodbye || answer.goodbye;
  static_cast<void>(shm::send_message(seat.socket, answer.bytes,
                                      std::span(&answer.descriptor, answer.descriptor >= 0 ? 1 : 0)));
  return Served::kAnswer;
}

std::size_t JobByHand::unreclaimed() {
  return engine_->reclaim();
}

}  // namespace muster::test
