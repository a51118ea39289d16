#include "daemon/supervisor/jobs/state.hpp"

#include "daemon/supervisor/listener/cgroup_origin.hpp"

#include <array>
#include <cstring>
#include <limits>
#include <string_view>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace muster::supervisor {
namespace {

using control::Json;

constexpr std::size_t kTokenBytesMax = 79;  // as a Hello carries it
constexpr std::size_t kReasonBytesMax = 4096;
constexpr std::size_t kJobsMax = 65536;
constexpr int kDepthMax = 16;
constexpr std::array<std::string_view, 7> kKnown{
    "epoch", "instance", "started_ns", "upgrade_ns", "protocol", "managers_socket_stood", "jobs"};

XXH128_hash_t checksum_of(State::Header header, std::span<const std::byte> body) {
  header.checksum[0] = header.checksum[1] = 0;
  const XXH64_hash_t seed = XXH3_64bits(&header, sizeof header);
  return XXH3_128bits_withSeed(body.data(), body.size(), seed);
}

std::span<const std::byte> body_of(const State::Header& header, std::span<const std::byte> bytes) {
  return bytes.subspan(sizeof header, static_cast<std::size_t>(header.length));
}

// A reason that can be read back: valid text, and no longer than a reader accepts.
std::string readable(const std::string& reason) {
  if (reason.size() <= kReasonBytesMax / 3) return reason;  // an invalid byte becomes three
  auto text =
      Json::parse(Json(reason).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
  if (text.size() <= kReasonBytesMax) return text;
  std::size_t end = kReasonBytesMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text;
}

Json to_json(const SavedJob& job) {
  Json tokens = Json::array();
  for (const SavedJob::Token& token : job.tokens)
    tokens.push_back({{"rank", token.rank}, {"attachments", token.attachments}, {"text", token.text}});
  Json origins = Json::array();
  for (const SavedJob::Origin& origin : job.origins)
    origins.push_back({{"rank", origin.rank}, {"seen", origin.seen}, {"said", origin.said}});
  Json spec = job.spec_later;
  spec.update(control::to_json(job.spec));
  Json json = job.later;
  json.update({{"spec", std::move(spec)},
               {"gid", job.gid},
               {"engine_pid", job.engine_pid},
               {"owner", job.owner},
               {"made", job.made},
               {"held", job.held},
               {"ending", readable(job.ending)},
               {"tokens", std::move(tokens)},
               {"origins", std::move(origins)}});
  return json;
}

// Fields that were read and would not be written again.
Json unknown_of(Json read, const Json& written) {
  for (const auto& [name, value] : written.items()) read.erase(name);
  return read;
}

// Reads fields of one object; keeps the first fault.
class StateReader {
 public:
  StateReader(const Json& json, const char* of) : json_(json), of_(of) {
    if (!json.is_object()) status_ = failure(Code::kProtocol, "state: {} is no object", of);
  }
  template<class T>
  void number(const char* name, T& target, std::uint64_t high = std::numeric_limits<T>::max(),
              std::uint64_t low = 0) {
    const Json* field = find(name);
    if (field == nullptr) return;
    if (!field->is_number_unsigned() || field->get<std::uint64_t>() > high ||
        field->get<std::uint64_t>() < low)
      return complain(name);
    target = static_cast<T>(field->get<std::uint64_t>());
  }
  void text(const char* name, std::string& target, std::size_t bytes_max) {
    const Json* field = find(name);
    if (field == nullptr) return;
    if (!field->is_string() || field->get_ref<const std::string&>().size() > bytes_max) return complain(name);
    target = field->get<std::string>();
  }
  // A field newer than version 1 may be missing.
  void flag_if_there(const char* name, bool& target) {
    if (!status_.ok() || !json_.contains(name)) return;
    if (!json_.at(name).is_boolean()) return complain(name);
    target = json_.at(name).get<bool>();
  }
  const Json* list(const char* name, std::size_t size_max) {
    const Json* field = find(name);
    if (field == nullptr) return nullptr;
    if (field->is_array() && field->size() <= size_max) return field;
    complain(name);
    return nullptr;
  }
  const Json* find(const char* name) {
    if (!status_.ok()) return nullptr;
    const auto it = json_.find(name);
    if (it != json_.end()) return &*it;
    complain(name);
    return nullptr;
  }
  const Status& status() const { return status_; }

 private:
  void complain(const char* name) {
    status_ = failure(Code::kProtocol, "state: field {} of {} is missing or out of range", name, of_);
  }
  const Json& json_;
  const char* of_;
  Status status_;
};

Result<SavedJob::Token> token_from(const Json& json, const SavedJob& job) {
  SavedJob::Token token;
  StateReader fields(json, "a token");
  fields.number("rank", token.rank, job.spec.world.size() - 1);
  fields.number("attachments", token.attachments);
  fields.text("text", token.text, kTokenBytesMax);
  if (!fields.status().ok()) return fail(fields.status());
  return token;
}

// Newer than version 1: they may be missing. They matter less than the job: a value that is no origin is left
// out.
std::vector<SavedJob::Origin> origins_from(const Json& json, const SavedJob& job) {
  std::vector<SavedJob::Origin> origins;
  const auto said = json.find("origins");
  if (said == json.end() || !said->is_array() || said->size() > job.spec.world.size()) return origins;
  for (const Json& entry : *said) {
    SavedJob::Origin origin;
    StateReader fields(entry, "an origin");
    fields.number("rank", origin.rank, job.spec.world.size() - 1);
    fields.text("seen", origin.seen, kOriginBytesMax);
    fields.text("said", origin.said, kOriginBytesMax);
    if (fields.status().ok()) origins.push_back(std::move(origin));
  }
  return origins;
}

Result<SavedJob> job_from(const Json& json) {
  SavedJob job;
  StateReader fields(json, "a job");
  fields.number("gid", job.gid);
  fields.number("engine_pid", job.engine_pid);
  fields.number("owner", job.owner);
  fields.flag_if_there("made", job.made);
  fields.flag_if_there("held", job.held);
  fields.text("ending", job.ending, kReasonBytesMax);
  const Json* spec = fields.find("spec");
  const Json* tokens = fields.list("tokens", control::kWorldMax);
  if (!fields.status().ok()) return fail(fields.status());
  auto read = control::job_from_json(*spec);
  if (!read) return fail(Code::kProtocol, "state: {}", read.error().message());
  job.spec = *std::move(read);
  for (const Json& entry : *tokens) {
    MUSTER_ASSIGN_OR_RETURN(auto token, token_from(entry, job));
    job.tokens.push_back(std::move(token));
  }
  job.origins = origins_from(json, job);
  job.spec_later = unknown_of(*spec, control::to_json(job.spec));
  job.later = unknown_of(json, to_json(job));
  return job;
}

Result<State> state_from(const Json& json) {
  State state;
  StateReader fields(json, "the whole");
  constexpr auto kTimeMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  fields.number("epoch", state.epoch);
  fields.number("instance", state.instance);
  fields.number("started_ns", state.started_ns, kTimeMax);
  fields.number("upgrade_ns", state.upgrade_ns, kTimeMax);
  state.protocol = 0;
  if (json.is_object() && json.contains("protocol"))
    fields.number("protocol", state.protocol, std::numeric_limits<std::uint32_t>::max(), 1);
  fields.flag_if_there("managers_socket_stood", state.managers_socket_stood);
  const Json* jobs = fields.list("jobs", kJobsMax);
  if (!fields.status().ok()) return fail(fields.status());
  for (const Json& entry : *jobs) {
    MUSTER_ASSIGN_OR_RETURN(auto job, job_from(entry));
    for (const SavedJob& other : state.jobs)
      if (other.spec.id() == job.spec.id() || other.spec.epoch == job.spec.epoch)
        return fail(Code::kProtocol, "state: job {} is there twice", job.spec.name);
    state.jobs.push_back(std::move(job));
  }
  state.later = json;
  for (const std::string_view known : kKnown) state.later.erase(std::string(known));
  return state;
}

// Our states are not nested deeply; recursion over a deep one could overflow the stack.
Json parse_shallow(std::span<const std::byte> body) {
  bool deep = false;
  const auto* first = reinterpret_cast<const char*>(body.data());
  Json json = Json::parse(
      first, first + body.size(),
      [&deep](int depth, Json::parse_event_t, Json&) {
        deep = deep || depth > kDepthMax;
        return !deep;
      },
      false);
  return deep ? Json(Json::value_t::discarded) : json;
}

}  // namespace

std::vector<std::byte> seal(State::Header header, std::span<const std::byte> body) {
  const XXH128_hash_t checksum = checksum_of(header, body);
  header.checksum[0] = checksum.low64;
  header.checksum[1] = checksum.high64;
  std::vector<std::byte> bytes(sizeof header + body.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(bytes.data() + sizeof header, body.data(), body.size());
  return bytes;
}

std::vector<std::byte> encode(const State& state, const State::Format& format, std::uint64_t sequence) {
  Json body = state.later;
  for (const auto& [name, value] : format.first_values.items())
    if (!body.contains(name)) body[name] = value;
  body["epoch"] = state.epoch;
  body["instance"] = state.instance;
  body["started_ns"] = static_cast<std::uint64_t>(state.started_ns);
  body["upgrade_ns"] = static_cast<std::uint64_t>(state.upgrade_ns);
  if (state.protocol != 0) body["protocol"] = state.protocol;
  body["managers_socket_stood"] = state.managers_socket_stood;
  body["jobs"] = Json::array();
  for (const SavedJob& job : state.jobs) body["jobs"].push_back(to_json(job));
  const std::string text = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  State::Header header;
  header.version = format.version;
  header.oldest_reader = format.oldest_reader;
  header.sequence = sequence;
  header.length = text.size();
  return seal(header, std::as_bytes(std::span(text)));
}

Result<State::Header> check_state_header(std::span<const std::byte> bytes, std::size_t room) {
  State::Header header;
  if (bytes.size() < sizeof header)
    return fail(Code::kProtocol, "state: {} bytes are less than its header", bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagicState) return fail(Code::kProtocol, "state: it does not begin as one");
  if (room < sizeof header || header.length > room - sizeof header)
    return fail(Code::kProtocol, "state: a body of {} bytes is announced, and there is room for {}",
                header.length, room);
  return header;
}

Result<State::Header> check_whole(std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const State::Header header, check_state_header(bytes, bytes.size()));
  const XXH128_hash_t checksum = checksum_of(header, body_of(header, bytes));
  if (checksum.low64 == header.checksum[0] && checksum.high64 == header.checksum[1]) return header;
  return fail(Code::kProtocol, "state: the checksum is wrong: it was not written to the end, or changed");
}

Result<Decoded> decode(std::span<const std::byte> bytes, std::uint32_t reader) {
  // Check the checksum first, so that messages about versions are true.
  MUSTER_ASSIGN_OR_RETURN(const State::Header header, check_whole(bytes));
  if (header.version == 0 || header.oldest_reader > reader)
    return fail(Code::kVersion,
                "state: it is of version {}, for readers from version {} on; this daemon reads version {}",
                header.version, header.oldest_reader, reader);
  const Json json = parse_shallow(body_of(header, bytes));
  if (json.is_discarded()) return fail(Code::kProtocol, "state: its body is no JSON");
  MUSTER_ASSIGN_OR_RETURN(State state, state_from(json));
  return Decoded{std::move(state), header.version, header.sequence};
}

Status check_protocol(const State& state, const State::Format& format) {
  if (state.protocol == format.protocol) return {};
  return failure(Code::kVersion,
                 "its engines speak version {} of messages, and this program version {}; end the jobs, then "
                 "restart the daemon",
                 state.protocol, format.protocol);
}

}  // namespace muster::supervisor
