#include "daemon/engine/session/session.hpp"

#include <utility>

namespace muster::engine {

Session::Session(const SessionOptions& options, shm::SubmissionView submission,
                 shm::CompletionView completion, Arena& arena)
    : options_(options),
      submission_(std::move(submission)),
      completion_(std::move(completion)),
      publication_(submission_, completion_),
      buffers_(options.buffers_max, arena, publication_.counters()),
      plans_(options.plans_max, options.id, buffers_),
      intake_(options_, shm::ring_reader(submission_, completion_), publication_.counters(), buffers_,
              plans_) {}

Scope Session::scope(std::span<const scheduler::Group> groups) const {
  return {options_.rank, options_.id, buffers_, groups, *options_.groups, options_.world};
}

}  // namespace muster::engine
