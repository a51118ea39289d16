#include "api/client/checkpoint/group_members.hpp"

#include "api/client/set/resources.hpp"

#include <cstring>
#include <utility>

namespace muster::client {
namespace {

constexpr std::chrono::milliseconds kTellEvery(500);

// A message begins with the sender's status.
std::string message_of(const Status& own, std::string_view said) {
  const auto code = static_cast<muster_status_t>(own.code());
  std::string message(sizeof code, '\0');
  std::memcpy(message.data(), &code, sizeof code);
  message += own.ok() ? said : std::string_view(own.message());
  return message;
}

}  // namespace

Result<GroupMembers> GroupMembers::of(muster_session* session, muster_group group) {
  GroupMembers members(session, group);
  muster_session_info me = MUSTER_SESSION_INFO_INIT;
  MUSTER_RETURN_IF_ERROR(status_of(muster_session_query(session, &me)));
  if (group == MUSTER_GROUP_SELF) {
    members.ranks_ = {me.rank};
    return members;
  }
  std::size_t count = 0;
  MUSTER_RETURN_IF_ERROR(status_of(muster_group_ranks(session, group, nullptr, 0, &count)));
  members.ranks_.resize(count);
  MUSTER_RETURN_IF_ERROR(status_of(muster_group_ranks(session, group, members.ranks_.data(), count, &count)));
  for (std::size_t i = 0; i < count; ++i) {
    if (members.ranks_[i] != me.rank) continue;
    members.index_ = i;
    return members;
  }
  return fail(Code::kBadArgument, "rank {} is not a member of the group", me.rank);
}

Result<std::vector<std::string>> GroupMembers::gather(std::int32_t root, std::string_view said) {
  if (count() == 1) return std::vector<std::string>{std::string(said)};
  std::vector<std::uint64_t> offsets(count() + 1);
  const void* result = nullptr;
  MUSTER_RETURN_IF_ERROR(status_of(
      muster_object_gather(session_, group_, root, said.data(), said.size(), &result, offsets.data())));
  std::vector<std::string> all;
  if (result == nullptr) return all;
  for (std::size_t i = 0; i < count(); ++i)
    all.emplace_back(static_cast<const char*>(result) + offsets[i], offsets[i + 1] - offsets[i]);
  return all;
}

Result<std::vector<std::string>> GroupMembers::hear(const Status& own, std::string_view said) {
  MUSTER_ASSIGN_OR_RETURN(std::vector<std::string> all, gather(-1, message_of(own, said)));
  // A failure that all members report names no rank.
  const bool alike =
      std::all_of(all.begin(), all.end(), [&](const std::string& text) { return text == all[0]; });
  for (std::size_t i = 0; i < all.size(); ++i) {
    muster_status_t code = MUSTER_ERR_PROTOCOL;
    if (all[i].size() >= sizeof code) std::memcpy(&code, all[i].data(), sizeof code);
    std::string text = all[i].size() >= sizeof code ? all[i].substr(sizeof code) : std::string();
    if (code != MUSTER_OK) {
      const Code known = is_known(code) ? static_cast<Code>(code) : Code::kProtocol;
      return fail(Status(known, alike ? text : fmt::format("rank {}: {}", ranks_[i], text)));
    }
    all[i] = std::move(text);
  }
  return all;
}

Status GroupMembers::agree(const Status& own) {
  const auto all = hear(own, {});
  return all ? Status() : all.error();
}

Result<bool> GroupMembers::all_done(const Status& own, bool done) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> all, hear(own, done ? "1" : "0"));
  for (const std::string& said : all)
    if (said != "1") return false;
  return true;
}

Status Rounds::tell() {
  const auto now = std::chrono::steady_clock::now();
  if (!heard_.ok() || now - told_at_ < kTellEvery) return heard_;
  const Result<bool> done = members_.all_done({}, false);
  told_at_ = std::chrono::steady_clock::now();
  if (!done) heard_ = done.error();
  return heard_;
}

Status Rounds::finish(const Status& own) {
  MUSTER_RETURN_IF_ERROR(heard_);
  while (true) {
    MUSTER_ASSIGN_OR_RETURN(const bool all, members_.all_done(own, true));
    if (all) return {};
  }
}

}  // namespace muster::client
