#include "kernels/device/host/workers.hpp"

#include <algorithm>

namespace muster::device::host {

Workers::Workers(std::uint32_t workers) : working_(workers) {
  for (std::uint32_t i = 0; i < workers; ++i) all_.push_back(std::make_unique<Worker>(i));
  asleep_.reserve(workers);
}

bool Workers::set_working(std::uint32_t number) {
  const std::uint32_t before = working();
  const std::uint32_t now = std::clamp(number, std::min(1u, size()), size());
  if (now == before) return false;
  working_.store(now, std::memory_order_relaxed);
  std::erase_if(asleep_, [this](const Worker* worker) { return !works(*worker); });
  for (std::uint32_t i = before; i < now; ++i)
    if (!all_[i]->awake && all_[i].get() != sentinel_) asleep_.push_back(all_[i].get());
  return true;
}

void Workers::lie_down(Worker& worker) {
  worker.awake = false;
  if (works(worker)) asleep_.push_back(&worker);
}

void Workers::set_sentinel(Worker& worker) {
  worker.awake = false;
  sentinel_ = &worker;
}

void Workers::sleep(Worker& worker, std::unique_lock<std::mutex>& lock) {
  worker.bell.wait(lock, [&worker] { return worker.awake; });
}

Workers::Worker* Workers::rouse_sleeper() {
  if (asleep_.empty()) return nullptr;
  Worker* const worker = asleep_.back();
  asleep_.pop_back();
  worker->awake = true;
  return worker;
}

bool Workers::rouse_sentinel() {
  if (sentinel_ == nullptr) return false;
  sentinel_->awake = true;
  sentinel_ = nullptr;
  return true;
}

std::uint32_t Workers::rouse_all() {
  std::uint32_t roused = 0;
  asleep_.clear();
  for (const auto& worker : all_) {
    if (worker->awake || worker.get() == sentinel_) continue;
    worker->awake = true;
    worker->bell.notify_one();
    ++roused;
  }
  return roused;
}

}  // namespace muster::device::host
