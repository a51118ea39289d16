#include "daemon/supervisor/questions/node_texts.hpp"

#include "daemon/control/job_look.hpp"
#include "daemon/supervisor/questions/kept_texts.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;

constexpr std::array<std::string_view, 3> kKinds{"flight", "groups", "figures"};

Result<shm::Descriptor> as_text(const Json& json) {
  return control::text_descriptor(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// The engine gives a long text as a descriptor, a short one as the result itself.
Result<shm::Descriptor> text_in(Result<Packet> answer) {
  if (!answer) return fail(answer.error());
  MUSTER_ASSIGN_OR_RETURN(const Json result, control::result_of(*answer));
  if (answer->descriptors.empty()) return as_text(result);
  return std::move(answer->descriptors.front());
}

}  // namespace

bool NodeTexts::is_kind(std::string_view kind) {
  return std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
}

void NodeTexts::ask(const std::string& job, const std::string& kind, const Said& said) {
  if (kind == "figures") return said(figures(job));
  jobs_.ask(job, {{"command", kind}}, {},
            [said](Result<Packet> answer) { said(text_in(std::move(answer))); });
}

// Read as a file and not as memory: an engine runs with its job's rights, and touching a page of memory that
// it has chosen could end this program.
Result<shm::Descriptor> NodeTexts::figures(const std::string& job) const {
  const shm::Descriptor counters(::dup(jobs_.facts(job).counters));
  if (!counters.valid()) return fail(Code::kState, "job {} is still starting; try again", job);
  MUSTER_ASSIGN_OR_RETURN(const std::string bytes,
                          control::read_descriptor(counters, KeptTexts::kTextBytesMax));
  MUSTER_ASSIGN_OR_RETURN(const shm::Descriptor copy, control::text_descriptor(bytes));
  MUSTER_ASSIGN_OR_RETURN(const auto reader, shm::JobCountersReader::attach(copy));
  return as_text(control::look_json(control::look_at(reader, clock_.now())));
}

}  // namespace muster::supervisor
