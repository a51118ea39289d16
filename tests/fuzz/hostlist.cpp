// Any text as a hostlist: within its limit, and each host once.
#include "daemon/config/hostlist.hpp"

#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/promise.hpp"
#include "tests/fuzz/target.hpp"

#include <unordered_set>

namespace muster::config {
namespace {

constexpr std::size_t kNameMax = 253;

void check(std::string_view text, std::size_t limit) {
  const auto hosts = expand_hosts(text, limit);
  if (!hosts) {
    MUSTER_PROMISE(hosts.error().offset <= text.size() && !hosts.error().message.empty());
    return;
  }
  MUSTER_PROMISE(!hosts->empty() && hosts->size() <= limit);
  std::unordered_set<std::string_view> seen;
  for (const std::string& host : *hosts)
    MUSTER_PROMISE(!host.empty() && host.size() <= kNameMax && seen.insert(host).second);
}

}  // namespace
}  // namespace muster::config

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  muster::fuzz::Bytes bytes(data, size);
  const std::size_t limit = bytes.take<std::uint8_t>() * std::size_t{8};
  muster::config::check(bytes.rest_as_text(), limit);
  return 0;
}
