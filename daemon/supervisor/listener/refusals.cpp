#include "daemon/supervisor/listener/refusals.hpp"

#include "api/base/log.hpp"
#include "api/shm/message.hpp"
#include "api/shm/socket.hpp"
#include "daemon/supervisor/listener/cgroup_origin.hpp"

namespace muster::supervisor {
namespace {

constexpr Nanos kTellPeriod = std::chrono::milliseconds(250);

}  // namespace

void send_refusal(const shm::Descriptor& socket, std::uint32_t serial, const Status& why) {
  const shm::Failure failure = shm::make_failure(why, serial);
  static_cast<void>(shm::send_message(socket, shm::bytes_of(failure)));
}

Refusals::Refusals(control::Loop& loop, const Clock& clock) : loop_(loop), clock_(clock) {
  tell_more();
}

void Refusals::tell(const PendingClient& client, std::string_view what, const Status& why) {
  tell_in(all_, client, what, why);
}

void Refusals::tell_rank(const PendingClient& client, const Status& why) {
  tell_in(why.code() == Code::kDenied ? wrong_claims_ : all_, client, "a rank", why);
}

void Refusals::tell_in(RefusalLog& log, const PendingClient& client, std::string_view what,
                       const Status& why) {
  if (const auto line = log.line({client.who, client.process.pid, text_of(origin_of(client.process.pid))},
                                 what, why, clock_.now()))
    MUSTER_LOG(kWarning, "supervisor", "{}", *line);
}

void Refusals::tell_more() {
  for (RefusalLog* log : {&all_, &wrong_claims_})
    for (const std::string& line : log->due(clock_.now())) MUSTER_LOG(kWarning, "supervisor", "{}", line);
  loop_.after(kTellPeriod, [this] { tell_more(); });
}

}  // namespace muster::supervisor
