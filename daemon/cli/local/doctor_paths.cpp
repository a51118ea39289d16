#include "daemon/cli/local/doctor_paths.hpp"

#include "api/base/words.hpp"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

namespace muster::cli {
namespace {

constexpr std::size_t kAtOnce = 16;
constexpr const char* kSettings = "cluster.interfaces (or nodes[].interfaces)";

// A path that can be tried.
struct Way {
  std::size_t index = 0;  // of its check
  IpAddress there;
  std::uint16_t port = 0;
};

std::string text_in(const Json& json, const char* name) {
  return json.value(name, std::string());
}

// Fills the check of the peer before its path is tried. Returns the path, if it can be tried.
std::optional<Way> way_to(const Json& peer, Check& found) {
  found.name = peer.at("node").get<std::string>();
  const auto state = peer.at("state").get<std::string>();
  const Json path = peer.value("path", Json::object());
  if (state != "up") {
    found.says = fmt::format("not tried: the node at {} is {}{}", text_in(peer, "address"), state,
                             text_in(peer, "why").empty() ? "" : ": " + text_in(peer, "why"));
    found.fix =
        "start its daemon; if that runs, small packets may pass and large ones not: compare the MTU of both "
        "interfaces with that of the switches";
    return std::nullopt;
  }
  if (const std::string trouble = text_in(path, "trouble"); !trouble.empty()) {
    found.verdict = Check::Verdict::kFailure;
    found.says = "the node says: " + trouble;
    found.fix = fmt::format("correct {} for that node, and start its daemon anew", kSettings);
    return std::nullopt;
  }
  const auto there = IpAddress::parse(text_in(path, "address"));
  if (!there) {
    found.says = "not tried: the node does not say by which address it exchanges data";
    found.fix = "install the same release on both";
    return std::nullopt;
  }
  return Way{0, *there, path.value("port", std::uint16_t{0})};
}

}  // namespace

Check path_check(const std::string& node, const std::string& uses, const std::string& there,
                 const control::PathTrial& trial) {
  using Stage = control::PathTrial::Stage;
  const std::string packets =
      trial.segment_bytes == 0 ? "" : fmt::format(", {} bytes a packet", trial.segment_bytes);
  Check found{node, Check::Verdict::kFailure, "", ""};
  switch (trial.stage) {
    case Stage::kGood:
      found.verdict = Check::Verdict::kGood;
      found.says =
          fmt::format("{} from {} to {} and back in {:.1f} ms{}", bytes_text(control::kPathBytes), uses,
                      there, std::chrono::duration<double, std::milli>(trial.took).count(), packets);
      break;
    case Stage::kConnect:
      found.says = fmt::format("{} does not reach {}: {}", uses, there, trial.why.message());
      found.fix = fmt::format(
          "name an interface that leads there in {}, or open the ports of TCP between the nodes", kSettings);
      break;
    case Stage::kSmall:
      found.says = fmt::format("a connection from {} to {} stands, and nothing comes by it: {}", uses, there,
                               trial.why.message());
      found.fix = "see whether its daemon is stopped, or a firewall holds the connection";
      break;
    case Stage::kThere:
    case Stage::kBack:
      found.says = fmt::format("small messages pass between {} and {}; one of {} does not come {}: {}{}",
                               uses, there, bytes_text(control::kPathBytes),
                               trial.stage == Stage::kThere ? "there" : "back", trial.why.message(), packets);
      found.fix = fmt::format(
          "the way takes smaller packets than the MTU of these interfaces: set it on all nodes to that of "
          "the "
          "switches (ip link set dev NAME mtu 1500), or name another interface in {}",
          kSettings);
      break;
  }
  return found;
}

ClusterPaths try_paths(const Json& cluster, Nanos limit) {
  const SteadyClock clock;
  const Instant end = clock.now() + limit;
  ClusterPaths found;
  const Json own = cluster.value("path", Json::object());
  found.uses = own.value("uses", std::string("the interface of its name"));
  found.trouble = text_in(own, "trouble");
  const auto from = IpAddress::parse(text_in(own, "address"));
  std::vector<Way> ways;
  for (const Json& peer : cluster.at("peers")) {
    Check path;
    path.verdict = Check::Verdict::kWarning;
    auto way = way_to(peer, path);
    if (way && from) {
      way->index = found.paths.size();
      ways.push_back(*way);
      path.says = "not tried: no time was left";
      path.fix = "give more: --timeout";
    } else if (way) {
      path.says = "not tried: this node exchanges data by no interface";
    }
    found.paths.push_back(std::move(path));
  }
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < ways.size() && clock.now() < end; i = next++) {
      const Way& way = ways[i];
      const control::PathTrial trial = control::try_path(*from, way.there, way.port, kPathTime, clock);
      Check& path = found.paths[way.index];
      path = path_check(path.name, found.uses, way.there.text(), trial);
    }
  };
  std::vector<std::thread> workers;
  for (std::size_t i = 1; i < std::min(kAtOnce, ways.size()); ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  return found;
}

}  // namespace muster::cli
