#include "daemon/engine/memory/memory_waits.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

namespace muster::engine {

void MemoryWaits::wait(std::uint64_t bytes, Instant until, Again again) {
  requests_.push_back({bytes, until, std::move(again)});
  watch();
  if (!std::exchange(asked_, true)) ask_(bytes);
}

void MemoryWaits::on_room() {
  try_all(Try::kMayWaitAgain);
}

void MemoryWaits::on_no_room() {
  try_all(Try::kLast);
}

// A request that still does not fit may wait, and then asks, again.
void MemoryWaits::try_all(Try which) {
  asked_ = false;
  for (const Request& request : std::exchange(requests_, {}))
    request.again(clock_.now() >= request.until ? Try::kLast : which);
}

// A supervisor that was started anew does not know of the question, and does not answer.
void MemoryWaits::watch() {
  loop_.unwatch(std::exchange(timer_, 0));
  if (requests_.empty()) return;
  const auto first = std::min_element(requests_.begin(), requests_.end(),
                                      [](const Request& a, const Request& b) { return a.until < b.until; });
  timer_ = loop_.after(std::max(Nanos(0), first->until - clock_.now()), [this] {
    timer_ = 0;
    std::vector<Request> late;
    const auto is_late = [now = clock_.now()](const Request& request) { return request.until <= now; };
    const auto rest = std::stable_partition(requests_.begin(), requests_.end(), std::not_fn(is_late));
    std::move(rest, requests_.end(), std::back_inserter(late));
    requests_.erase(rest, requests_.end());
    if (requests_.empty()) asked_ = false;
    watch();
    for (const Request& request : late) request.again(Try::kLast);
  });
}

}  // namespace muster::engine
