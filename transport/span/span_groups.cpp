#include "transport/span/span_groups.hpp"

#include <algorithm>
#include <utility>

namespace muster::transport::span {

Result<SpanGroups::OpenGroup> SpanGroups::open(const Span& span) {
  auto shared = std::make_shared<const Span>(span);
  auto traffic = std::make_shared<Traffic>();
  const std::lock_guard lock(mutex_);
  Group& group = groups_[span.group];
  if (group.span != nullptr)
    return fail(Code::kUnsupported, "another group of the same ranks goes by the same name between nodes");
  group.span = shared;
  group.traffic = traffic;
  return OpenGroup{std::move(shared), std::move(traffic), group.launches};
}

void SpanGroups::close(std::uint64_t group, Launches launches) {
  const std::lock_guard lock(mutex_);
  const auto known = groups_.find(group);
  Group& closed = known->second;
  closed.span.reset();
  closed.traffic.reset();
  closed.launches = launches.epoch < closed.present_epoch ? Launches() : std::move(launches);
  if (closed.launches.counts.empty() && closed.present_epoch == 1) groups_.erase(known);
}

std::shared_ptr<const Span> SpanGroups::span_of(std::uint64_t group) const {
  const std::lock_guard lock(mutex_);
  const auto known = groups_.find(group);
  return known == groups_.end() ? nullptr : known->second.span;
}

std::uint64_t SpanGroups::first_epoch(std::uint64_t group) const {
  const std::lock_guard lock(mutex_);
  const auto known = groups_.find(group);
  return known == groups_.end() ? 1 : known->second.present_epoch;
}

void SpanGroups::end(const EpochEnd& end) {
  const std::lock_guard lock(mutex_);
  Group& group = groups_[end.group];
  group.present_epoch = std::max(group.present_epoch, end.epoch + 1);
  if (group.launches.epoch < group.present_epoch) group.launches = {};
}

void SpanGroups::came_late(Bytes message) {
  const auto group = group_of(message);
  if (!group) return;
  const std::lock_guard lock(mutex_);
  const auto known = groups_.find(*group);
  if (known != groups_.end() && known->second.traffic != nullptr) known->second.traffic->came_late();
}

}  // namespace muster::transport::span
