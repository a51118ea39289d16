#include "api/client/set/resources.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace muster::client {

muster_status_t repeat_while_busy(const std::function<muster_status_t()>& call) {
  constexpr int kBusyNapsMax = 10'000;
  muster_status_t code = call();
  for (int naps = 0; code == MUSTER_ERR_BUSY && naps < kBusyNapsMax; ++naps) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    code = call();
  }
  return code;
}

Status check_session(muster_session* session) {
  muster_session_info info = MUSTER_SESSION_INFO_INIT;
  return status_of(muster_session_query(session, &info));
}

bool is_site(std::string_view text) {
  return !text.empty() && text.size() < 48 &&
         std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < 32; });
}

Result<std::vector<std::int32_t>> ranks_of(muster_session* session, muster_group group) {
  std::size_t count = 0;
  MUSTER_RETURN_IF_ERROR(status_of(muster_group_ranks(session, group, nullptr, 0, &count)));
  std::vector<std::int32_t> ranks(count);
  MUSTER_RETURN_IF_ERROR(status_of(muster_group_ranks(session, group, ranks.data(), ranks.size(), &count)));
  return ranks;
}

Result<muster_buffer> Resources::buffer(std::uint64_t bytes) {
  muster_buffer buffer = 0;
  bytes = std::max<std::uint64_t>(bytes, 1);
  MUSTER_RETURN_IF_ERROR(status_of(muster_buffer_alloc(session_, bytes, &buffer, nullptr)));
  bytes_ += bytes;
  return buffers_.emplace_back(buffer);
}

Result<muster_buffer> Resources::shared_buffer(std::uint64_t bytes, muster_group group,
                                               const std::string& name) {
  muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
  options.bytes = std::max<std::uint64_t>(bytes, 1);
  options.name = name.c_str();
  options.shared_by = group;
  muster_buffer buffer = 0;
  MUSTER_RETURN_IF_ERROR(status_of(muster_buffer_create(session_, &options, &buffer, nullptr)));
  bytes_ += options.bytes;
  return buffers_.emplace_back(buffer);
}

Result<muster_plan> Resources::plan(const muster_collective& collective) {
  muster_plan plan = 0;
  MUSTER_RETURN_IF_ERROR(status_of(muster_plan_collective(session_, &collective, &plan)));
  return plans_.emplace_back(plan);
}

Result<muster_plan> Resources::plan(const muster_kernel& kernel) {
  muster_plan plan = 0;
  MUSTER_RETURN_IF_ERROR(status_of(muster_plan_kernel(session_, &kernel, &plan)));
  return plans_.emplace_back(plan);
}

Status Resources::release() {
  for (; !plans_.empty(); plans_.pop_back())
    MUSTER_RETURN_IF_ERROR(
        status_of(repeat_while_busy([&] { return muster_plan_destroy(session_, plans_.back()); })));
  for (; !buffers_.empty(); buffers_.pop_back())
    if (const muster_status_t code = muster_buffer_free(session_, buffers_.back());
        code != MUSTER_OK && code != MUSTER_ERR_BUSY)
      return status_of(code);
  bytes_ = 0;
  return {};
}

}  // namespace muster::client
