#include "daemon/engine/direct/direct_pages.hpp"

#include <utility>

namespace muster::engine {

DirectPages::DirectPages(std::unique_ptr<DirectSegments> segments)
    : segments_(std::move(segments)),
      epochs_(std::make_unique<GroupEpochs>(*segments_)),
      records_(*segments_, *epochs_),
      disagreements_(segments_->groups()) {}

Result<DirectPages> DirectPages::create(std::span<const scheduler::Group> groups, const World& world,
                                        std::uint32_t made_max, std::uint64_t epoch,
                                        const shm::Headroom& headroom,
                                        const std::shared_ptr<MemoryAccount>& account) {
  MUSTER_ASSIGN_OR_RETURN(auto segments,
                          DirectSegments::create(groups, world, made_max, epoch, headroom, account));
  return DirectPages(std::move(segments));
}

void DirectPages::reset(Rank rank, bool first) {
  segments_->clear(rank);
  if (first)
    epochs_->begin(rank);
  else
    epochs_->enter(rank);
}

Status DirectPages::add_group(GroupId group, std::span<const Rank> ranks) {
  MUSTER_RETURN_IF_ERROR(segments_->add(group, ranks));
  epochs_->begin_group(group);
  disagreements_.forget(group);
  return {};
}

void DirectPages::remove_group(GroupId group) {
  segments_->remove(group);
  epochs_->begin_group(group);
  disagreements_.forget(group);
}

}  // namespace muster::engine
