#include "daemon/engine/nodes/job_network.hpp"

#include "api/base/log.hpp"
#include "api/base/network/network_devices.hpp"
#include "transport/endpoint/library.hpp"
#include "transport/span/spanning_transport.hpp"

#include <utility>

namespace muster::engine {
Result<transport::JobTransport> open_job_network(const control::JobSpec& spec, const Clock& clock,
                                                 MemoryBudget* memory) {
  if (spec.network.empty()) return transport::JobTransport();
  const auto choice = interfaces_of_network(spec.network, spec.interfaces);
  if (!choice) return fail(choice.error().code(), "network {}: {}", spec.network, choice.error().message());
  MUSTER_LOG(kInfo, "engine", "job {}: network {} uses {}: {}", spec.name, spec.network, choice->text(),
             choice->why);
  auto network = transport::open_network(spec.networks_directory, spec.network, spec.world.here(), *choice);
  if (!network)
    return fail(network.error().code(), "network {}: {}; see `muster doctor`, or set cluster.network",
                spec.network, network.error().message());
  const auto names = spec.world.nodes();
  transport::SpanningOptions options{
      {names.begin(), names.end()}, spec.world.here(), spec.reproducible, spec.link};
  options.memory = memory;
  return transport::spanning_transport(*std::move(network), std::move(options), clock);
}

}  // namespace muster::engine
