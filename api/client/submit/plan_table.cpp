#include "api/client/submit/plan_table.hpp"

#include <utility>

namespace muster::client {

PlanRecord& PlanTable::add(muster_plan plan) {
  const std::size_t slot = Handle(plan).slot();
  if (slot >= records_.size()) records_.resize(slot + 1);
  records_[slot] = PlanRecord();
  records_[slot].plan = plan;
  return records_[slot];
}

void PlanTable::remove(PlanRecord& record) {
  if (!record.news.empty()) clear_news(record);
  record = PlanRecord();
}

void PlanTable::set_news(PlanRecord& record, std::vector<shm::Command> news) {
  if (record.news.empty()) count_untold(untold_ + 1);
  record.news = std::move(news);
}

void PlanTable::clear_news(PlanRecord& record) {
  record.news.clear();
  count_untold(untold_ - 1);
}

void PlanTable::count_untold(std::uint64_t plans) {
  untold_ = plans;
  shm::Published<std::uint64_t>(&header_->untold).store_ordered(plans);
}

}  // namespace muster::client
