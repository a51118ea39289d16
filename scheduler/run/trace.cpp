#include "scheduler/run/trace.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace muster::scheduler {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string_view track_name(const Trace::Event& event, const LaneTable& lanes) {
  return event.lane == kDirectTrack ? std::string_view("direct") : lanes.label(event.lane_id);
}

// The tracks of all ranks by rank and number: the lanes with which each began, those that have events, and
// its runs. A lane that took the number of an earlier one names the track.
std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> tracks_of(std::span<const Trace::Event> events,
                                                                         std::span<const Rank> ranks,
                                                                         const LaneTable& lanes) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> tracks;
  for (const Rank rank : ranks) {
    for (muster_lane c = 0; c < MUSTER_LANE_CLASSES; ++c)
      tracks[{rank.value, c}] = lanes.label(LaneTable::first_of(c));
    tracks[{rank.value, kDirectTrack}] = "direct";
  }
  for (const Trace::Event& event : events) tracks[{event.rank.value, event.lane}] = track_name(event, lanes);
  return tracks;
}

double microseconds(Nanos span) {
  return static_cast<double>(span.count()) / 1000.0;
}

}  // namespace

void Trace::begin(Instant now) {
  events_.clear();
  sites_.clear();
  events_.reserve(std::min<std::size_t>(events_max_, 1 << 16));
  dropped_ = 0;
  origin_ = now;
  on_ = true;
}

void Trace::add(const Event& event) {
  if (!on_ || event.end < origin_) return;
  if (events_.size() == events_max_) {
    ++dropped_;
    return;
  }
  events_.push_back(event);
  events_.back().begin = std::max(event.begin, origin_);
  auto site = sites_.find(event.site);
  if (site == sites_.end()) site = sites_.emplace(event.site).first;
  events_.back().site = *site;
}

std::string Trace::json(std::string_view job, std::span<const Rank> ranks,
                        const std::vector<std::string>& group_names, const LaneTable& lanes) const {
  std::string out = "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"job\":" + quoted(job) +
                    fmt::format(",\"dropped_events\":{}}},\"traceEvents\":[\n", dropped_);
  for (const Rank rank : ranks) {
    out += fmt::format(
        "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{0},\"args\":{{\"name\":\"rank {0}\"}}}},\n",
        rank.value);
  }
  for (const auto& [track, name] : tracks_of(events_, ranks, lanes))
    out += fmt::format(
        "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}},\n",
        track.first, track.second, quoted(name));
  for (const Event& e : events_) {
    out += fmt::format(
        "{{\"ph\":\"X\",\"name\":\"{}\",\"cat\":{},\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f}",
        e.label, quoted(track_name(e, lanes)), e.rank.value, e.lane, microseconds(e.begin - origin_),
        microseconds(e.end - e.begin));
    out += fmt::format(",\"args\":{{\"rank\":{},\"lane\":{},\"point\":{},\"bytes\":{}", e.rank.value,
                       quoted(track_name(e, lanes)), e.value, e.bytes);
    if (e.in_group) {
      out += ",\"group\":";
      out += e.group < group_names.size() ? quoted(group_names[e.group]) : "\"self\"";
    }
    if (!e.site.empty()) out += ",\"site\":" + quoted(e.site);
    if (e.step != 0) out += fmt::format(",\"step\":{}", e.step);
    out += "}},\n";
  }
  // A last metadata event closes the list without a trailing comma.
  out += "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":0,\"args\":{\"sort_index\":0}}\n]}\n";
  return out;
}

}  // namespace muster::scheduler
