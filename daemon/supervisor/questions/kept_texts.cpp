#include "daemon/supervisor/questions/kept_texts.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace muster::supervisor {
namespace {

using control::Json;

Result<Json> part_of(const shm::Descriptor& text, std::size_t bytes, std::uint64_t report, std::size_t from) {
  MUSTER_ASSIGN_OR_RETURN(auto part,
                          control::read_text(text, from, std::min(bytes - from, KeptTexts::kPartBytes)));
  return Json{{"report", report}, {"bytes", bytes}, {"from", from}, {"text", Json::binary(std::move(part))}};
}

}  // namespace

KeptTexts::~KeptTexts() {
  for (const auto& [report, kept] : kept_) loop_.unwatch(kept.timer);
}

Result<Json> KeptTexts::first(const std::string& peer, const Text& text) {
  MUSTER_ASSIGN_OR_RETURN(const std::size_t bytes, control::text_bytes(*text, kTextBytesMax));
  if (bytes <= kPartBytes) return part_of(*text, bytes, 0, 0);
  const auto held =
      std::count_if(kept_.begin(), kept_.end(), [&](const auto& entry) { return entry.second.peer == peer; });
  if (held >= static_cast<std::ptrdiff_t>(kOfPeerMax))
    return fail(Code::kBusy, "{} texts are kept for node {}, the limit; try again", held, peer);
  const std::uint64_t report = next_++;
  MUSTER_ASSIGN_OR_RETURN(Json part, part_of(*text, bytes, report, 0));
  kept_[report] = {peer, text, bytes};
  expire_later(report);
  return part;
}

Result<Json> KeptTexts::part(const std::string& peer, std::uint64_t report, std::uint64_t from) {
  const auto it = kept_.find(report);
  if (it == kept_.end() || it->second.peer != peer)
    return fail(Code::kNotFound, "it has no report {} for node {} any more", report, peer);
  const Kept& kept = it->second;
  if (from >= kept.bytes)
    return fail(Code::kBadArgument, "report {} has {} bytes, and none from {} on", report, kept.bytes, from);
  auto part = part_of(*kept.text, kept.bytes, report, static_cast<std::size_t>(from));
  kept.bytes - from <= kPartBytes ? drop(report) : expire_later(report);
  return part;
}

void KeptTexts::forget(const std::string& peer) {
  std::vector<std::uint64_t> gone;
  for (const auto& [report, kept] : kept_)
    if (kept.peer == peer) gone.push_back(report);
  for (const std::uint64_t report : gone) drop(report);
}

void KeptTexts::expire_later(std::uint64_t report) {
  Kept& kept = kept_.at(report);
  loop_.unwatch(kept.timer);
  kept.timer = loop_.after(kTime, [this, report] { drop(report); });
}

void KeptTexts::drop(std::uint64_t report) {
  const auto node = kept_.extract(report);
  if (!node.empty()) loop_.unwatch(node.mapped().timer);
}

}  // namespace muster::supervisor
