// muster_session::ask: the typed half of one control exchange.
#pragma once

#include "api/client/session.hpp"
#include "api/shm/message.hpp"

template<class Answer, class Request>
muster::Result<Answer> muster_session::ask(Request request, muster::shm::MessageKind kind,
                                           muster::shm::MessageKind answer_kind,
                                           std::span<const std::byte> extra, std::vector<std::byte>* list,
                                           muster::shm::Descriptor* descriptor, int sent) {
  namespace shm = muster::shm;
  request.header = shm::make_message<shm::Plain>(kind, ++serial_).header;
  request.header.bytes = static_cast<std::uint32_t>(sizeof request + extra.size());
  MUSTER_ASSIGN_OR_RETURN(const auto bytes,
                          exchange(std::as_writable_bytes(std::span(&request, 1)), extra, descriptor, sent));
  auto answer = shm::checked_answer<Answer>(bytes, answer_kind, serial_,
                                            list != nullptr ? shm::Tail::kAllowed : shm::Tail::kNone);
  if (!answer) {
    const muster::Code code = answer.error().code();
    const bool broken = code == muster::Code::kProtocol || code == muster::Code::kVersion;
    return muster::fail(broken ? lose(answer.error()) : answer.error());
  }
  if (list != nullptr) {
    const auto tail = shm::tail_of<Answer>(bytes);
    list->assign(tail.begin(), tail.end());
  }
  return answer;
}
