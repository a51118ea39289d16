// muster_session::ask: the typed half of one control exchange.
#pragma once

#include "api/client/session.hpp"

#include <cstring>

template<class Answer, class Request>
muster::Result<Answer> muster_session::ask(Request request, muster::shm::MessageKind kind,
                                           muster::shm::MessageKind answer_kind,
                                           std::span<const std::byte> extra, std::vector<std::byte>* list,
                                           muster::shm::Descriptor* descriptor) {
  request.header = muster::shm::MessageHeader{};
  request.header.kind = kind;
  request.header.serial = ++serial_;
  request.header.bytes = static_cast<std::uint32_t>(sizeof request + extra.size());
  auto bytes = exchange(std::as_writable_bytes(std::span(&request, 1)), extra, descriptor);
  if (!bytes) return muster::fail(bytes.error());
  Answer answer;
  const bool size_good = list != nullptr ? bytes->size() >= sizeof answer : bytes->size() == sizeof answer;
  if (size_good) std::memcpy(&answer, bytes->data(), sizeof answer);
  if (!size_good || answer.header.kind != answer_kind)
    return muster::fail(muster::Code::kProtocol, "the daemon's answer is not of the kind expected");
  if (list != nullptr) list->assign(bytes->begin() + sizeof answer, bytes->end());
  return answer;
}
