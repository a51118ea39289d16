// The data that a supervisor leaves to its successor: a state of any bytes, a file of two slots whose last
// write may be cut off, and descriptors of any names. The successor takes over from them (takeover.hpp).
//
// The state is read back as it was written, or there is a complaint. A write that was cut off leaves the
// state before it. Fields of later versions are preserved.
#include "daemon/supervisor/jobs/state.hpp"

#include "daemon/supervisor/base/descriptor_store.hpp"
#include "daemon/supervisor/takeover/state_file.hpp"
#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/promise.hpp"
#include "tests/fuzz/takeover.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Json;
using fuzz::Bytes;
using Encoded = std::vector<std::byte>;

// A complaint has a name and says what it is about.
void check_complaint(const Status& status) {
  MUSTER_PROMISE(status.code() == Code::kProtocol || status.code() == Code::kVersion);
  MUSTER_PROMISE(status.message().starts_with("state: ") && status.message().size() < 4096);
}

Json body_of(std::span<const std::byte> bytes) {
  const auto* first = reinterpret_cast<const char*>(bytes.data());
  return Json::parse(first + sizeof(State::Header), first + bytes.size());
}

// `whole` has all that `part` has, with the same values.
void check_within(const Json& part, const Json& whole) {
  for (const auto& [name, value] : part.items()) MUSTER_PROMISE(whole.at(name) == value);
}

// Goal:   every field came through, and those of later versions too.
void check_fields(const State& state, const Json& body) {
  Json again = body_of(encode(state, {}, 1));
  if (!body.contains("managers_socket_stood")) again.erase("managers_socket_stood");  // it may be missing
  for (const auto& [name, value] : body.items())
    if (name != "jobs") MUSTER_PROMISE(again.at(name) == value);
  MUSTER_PROMISE(again.size() == body.size() && again.at("jobs").size() == body.at("jobs").size());
  for (std::size_t i = 0; i < state.jobs.size(); ++i) {
    const Json& mine = again.at("jobs")[i];
    const Json& theirs = body.at("jobs")[i];
    check_within(mine.at("spec"), theirs.at("spec"));
    check_within(theirs.at("spec"), mine.at("spec"));
    for (const auto& [name, value] : theirs.items())
      if (name != "spec" && name != "tokens") MUSTER_PROMISE(mine.at(name) == value);
    MUSTER_PROMISE(mine.at("tokens").size() == theirs.at("tokens").size());
    for (std::size_t t = 0; t < mine.at("tokens").size(); ++t)
      check_within(mine.at("tokens")[t], theirs.at("tokens")[t]);
  }
}

// Goal:   a state that was taken is one that a supervisor can work with.
void check_jobs(const State& state) {
  std::set<std::string> names;
  std::set<std::uint64_t> epochs;
  for (const SavedJob& job : state.jobs) {
    MUSTER_PROMISE(names.insert(job.spec.name).second && epochs.insert(job.spec.epoch).second);
    MUSTER_PROMISE(control::check_job_name(job.spec.name).ok() && job.spec.epoch != 0);
    MUSTER_PROMISE(job.spec.world.size() >= 1 && job.spec.world.size() <= control::kWorldMax &&
                   job.engine_pid >= 0);
    for (const SavedJob::Token& token : job.tokens) MUSTER_PROMISE(token.rank < job.spec.world.size());
  }
}

void check_bytes(std::span<const std::byte> bytes, std::uint32_t reader) {
  const auto decoded = decode(bytes, reader);
  if (!decoded) {
    check_complaint(decoded.error());
    if (decoded.error().code() == Code::kVersion) MUSTER_PROMISE(check_whole(bytes));
    return;
  }
  const auto header = check_whole(bytes);
  MUSTER_PROMISE(header && header->version == decoded->version && header->sequence == decoded->sequence);
  MUSTER_PROMISE(header->version > 0 && header->oldest_reader <= reader);
  check_jobs(decoded->state);
  check_fields(decoded->state, body_of(bytes.first(sizeof(State::Header) + header->length)));
  const Encoded once = encode(decoded->state, {}, 9);
  const auto again = decode(once, 1);
  MUSTER_PROMISE(again && encode(again->state, {}, 9) == once);
}

// Any body behind a header that is right, but for what the input says.
void check_body(Bytes& bytes) {
  State::Header header;
  header.version = static_cast<std::uint32_t>(bytes.below(4));
  header.oldest_reader = static_cast<std::uint32_t>(bytes.below(4));
  header.sequence = bytes.number();
  const auto reader = static_cast<std::uint32_t>(1 + bytes.below(3));
  const auto body = std::as_bytes(bytes.rest());
  header.length = body.size();
  check_bytes(seal(header, body), reader);
}

State any_state(Bytes& bytes) {
  State state;
  state.epoch = bytes.number();
  state.instance = bytes.number();
  state.started_ns = static_cast<std::int64_t>(bytes.number() >> 1);
  state.upgrade_ns = bytes.take<std::uint16_t>();
  const std::uint64_t jobs = bytes.below(4);
  for (std::uint64_t i = 0; i < jobs; ++i) {
    SavedJob job;
    job.spec.name = std::string(1 + bytes.below(63), static_cast<char>('a' + i));
    job.spec.world = static_cast<std::uint32_t>(1 + bytes.below(5));
    job.spec.mesh = bytes.text(bytes.below(16));
    job.spec.epoch = i + 1;
    job.gid = bytes.take<std::uint32_t>();
    job.engine_pid = bytes.take<std::uint16_t>();
    job.owner = bytes.number();
    job.ending = bytes.text(bytes.below(16));
    if (bytes.below(64) == 63) job.ending.append(5000, job.ending.empty() ? 'x' : job.ending[0]);
    for (std::uint32_t rank = 0; rank < job.spec.world.size(); ++rank)
      if (bytes.flag()) job.tokens.push_back({rank, bytes.take<std::uint8_t>(), bytes.text(8)});
    state.jobs.push_back(std::move(job));
  }
  return state;
}

State::Format any_format(Bytes& bytes) {
  State::Format format;
  format.version = static_cast<std::uint32_t>(1 + bytes.below(3));
  format.oldest_reader = static_cast<std::uint32_t>(1 + bytes.below(format.version));
  if (format.version > 1) format.first_values = {{"more", bytes.number()}};
  return format;
}

// A byte of a header that announces a body of more than 64 KiB, which is read before it is found out not to
// be one: right, but under the sanitizers half a second for an input.
bool is_costly(std::uint64_t at) {
  return at >= offsetof(State::Header, length) + 2 &&
         at < offsetof(State::Header, length) + sizeof(std::uint64_t);
}

// A file of a state, one writer after another, and what becomes of it.
//
// Owns    the file.
// Thread  one.
// Bound   kStepsMax steps.
// Fails   a broken promise.
class Slots {
 public:
  explicit Slots(Bytes& bytes) : bytes_(bytes) { begin(); }

  void run() {
    for (int i = 0; i < kStepsMax && !bytes_.empty(); ++i) step();
    look();
  }

 private:
  static constexpr int kStepsMax = 16;

  void begin() {
    auto file = StateFile::create();
    MUSTER_PROMISE(file);
    file_.emplace(*std::move(file));
    current_.reset();
    written_.clear();
    sequence_ = 0;
    spoilt_ = false;
  }
  off_t place(std::uint64_t sequence) const { return static_cast<off_t>((sequence % 2) * kStateBytesMax); }
  void put(off_t offset, std::span<const std::byte> bytes) const {
    const ssize_t size = static_cast<ssize_t>(bytes.size());
    MUSTER_PROMISE(pwrite(file_->descriptor().get(), bytes.data(), bytes.size(), offset) == size);
  }

  void write() {
    const State state = any_state(bytes_);
    const State::Format format = any_format(bytes_);
    MUSTER_PROMISE(file_->write(state, format).ok());
    ++sequence_;
    current_ = encode(state, format, sequence_);
    written_.emplace(sequence_, *current_);
  }
  // The next write, of which only the beginning came about.
  void tear() {
    const State state = any_state(bytes_);
    const auto next = encode(state, any_format(bytes_), sequence_ + 1);
    const auto cut = static_cast<std::size_t>(bytes_.below(next.size()));
    put(place(sequence_ + 1), std::span(next).first(cut));
    written_.emplace(sequence_ + 1, next);  // what lay there may happen to end as it does
    torn_ = next;
  }
  void spoil() {
    spoilt_ = true;
    const auto byte = static_cast<std::byte>(bytes_.take<std::uint8_t>());
    const std::uint64_t slot = bytes_.below(2);
    const std::uint64_t at = bytes_.below(1024);
    if (is_costly(at)) return;
    put(place(slot) + static_cast<off_t>(at), std::span(&byte, 1));
  }
  // One slot's content in the other.
  void confuse() {
    spoilt_ = true;
    const std::uint64_t from = bytes_.below(2);
    Encoded content(4096);
    MUSTER_PROMISE(pread(file_->descriptor().get(), content.data(), content.size(), place(from)) == 4096);
    put(place(from + 1), content);
  }
  // Goal:   the last state that was written whole, or a complaint if bytes were spoilt or it is for others.
  void look() {
    auto successor = StateFile::adopt(shm::Descriptor(dup(file_->descriptor().get())));
    MUSTER_PROMISE(successor);
    const auto reader = static_cast<std::uint32_t>(1 + bytes_.below(3));
    const auto read = successor->read(reader);
    if (!read) check_complaint(read.error());
    if (!spoilt_ && !current_) MUSTER_PROMISE(!read || torn_);
    if (!spoilt_ && current_ && !torn_whole()) {
      const auto expected = decode(*current_, reader);
      MUSTER_PROMISE(read.has_value() == expected.has_value());
      if (read) MUSTER_PROMISE(read->sequence == sequence_);
      if (!read) MUSTER_PROMISE(read.error().code() == Code::kVersion);
    }
    if (read) {
      MUSTER_PROMISE(read->sequence <= sequence_ + 1);
      // It is one that was written, field by field.
      const auto [first, last] = written_.equal_range(read->sequence);
      MUSTER_PROMISE(std::any_of(first, last, [&](const auto& entry) {
        const auto one = decode(entry.second, reader);
        return one && one->version == read->version &&
               encode(one->state, {}, 1) == encode(read->state, {}, 1);
      }));
    }
  }
  bool torn_whole() const {
    if (!torn_) return false;
    Encoded there(torn_->size());
    const ssize_t n = pread(file_->descriptor().get(), there.data(), there.size(), place(sequence_ + 1));
    return n == static_cast<ssize_t>(there.size()) && there == *torn_;
  }
  // The successor goes on after the last whole write, or begins anew.
  void hand_on() {
    auto successor = StateFile::adopt(shm::Descriptor(dup(file_->descriptor().get())));
    MUSTER_PROMISE(successor);
    const auto read = successor->read(3);
    if (!read || spoilt_) return begin();
    sequence_ = read->sequence;
    if (torn_whole()) current_ = torn_;
    torn_.reset();
    file_.emplace(*std::move(successor));
  }
  void step() {
    switch (bytes_.below(8)) {
      case 0:
        return tear();
      case 1:
        return spoil();
      case 2:
        return confuse();
      case 3:
      case 4:
        return look();
      case 5:
        return hand_on();
      default:
        torn_.reset();  // overwritten: the same slot is next
        return write();
    }
  }

  Bytes& bytes_;
  std::optional<StateFile> file_;
  std::optional<Encoded> current_;                 // the last that was written to the end
  std::optional<Encoded> torn_;                    // the one after it, of which a part is there
  std::multimap<std::uint64_t, Encoded> written_;  // by sequence
  std::uint64_t sequence_ = 0;
  bool spoilt_ = false;
};

// Goal:   as many names as descriptors came, or none; none of them can be mistaken for two.
void check_names(Bytes& bytes) {
  constexpr long kPid = 77;
  const auto value = [&](const char* right, std::string* text) -> const char* {
    const auto how = bytes.below(16);
    if (how == 0) return nullptr;
    *text = how < 12 ? right : bytes.text(bytes.below(24)).c_str();
    return text->c_str();
  };
  std::string pid_text, count_text;
  const char* pid = value("77", &pid_text);
  const char* count = value(std::to_string(bytes.below(300)).c_str(), &count_text);
  const bool some = bytes.flag();
  const std::string list = bytes.rest_as_text();
  const auto names = inherited_names(pid, count, some ? list.c_str() : nullptr, kPid);
  if (names.empty()) return;
  MUSTER_PROMISE(pid != nullptr && std::stol(pid) == kPid && count != nullptr);
  MUSTER_PROMISE(names.size() == std::stoul(count));
  std::string joined;
  for (const std::string& name : names) {
    MUSTER_PROMISE(name.find(':') == std::string::npos);
    joined += (joined.empty() && &name == names.data() ? "" : ":") + name;
  }
  // The list is what they began as: more names are left out, fewer are empty.
  const std::string said = some ? list.c_str() : "";
  const std::size_t common = std::min(said.size(), joined.size());
  MUSTER_PROMISE(said.compare(0, common, joined, 0, common) == 0);
}

// A file of anything else: it is refused unless its size and its seals are right, and it never yields a
// state.
void check_adoption_of_others(Bytes& bytes) {
  shm::Descriptor other(memfd_create("other", MFD_CLOEXEC | (bytes.flag() ? MFD_ALLOW_SEALING : 0)));
  const auto size = static_cast<off_t>(bytes.number() >> 1);
  const bool fits = bytes.flag();
  const off_t bytes_there = fits ? static_cast<off_t>(2 * kStateBytesMax) : size % 100'000;
  if (ftruncate(other.get(), bytes_there) != 0) return;  // there is no memory for it
  const int seals = static_cast<int>(bytes.below(16));
  const bool sealed = fcntl(other.get(), F_ADD_SEALS, seals) == 0;
  const auto some = bytes.some(64);
  std::vector<std::uint8_t> content(some.begin(), some.end());
  for (std::size_t i = 0; i < content.size(); ++i)
    if (is_costly(i)) content[i] = 0;
  if (fits) static_cast<void>(!pwrite(other.get(), content.data(), content.size(), 0));
  auto file = StateFile::adopt(std::move(other));
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  MUSTER_PROMISE(file.has_value() == (fits && sealed && (seals & kNeeded) == kNeeded));
  if (!file) return check_complaint(file.error());
  const auto read = file->read(1);
  MUSTER_PROMISE(!read);
  check_complaint(read.error());
}

void run(Bytes& bytes) {
  switch (bytes.below(8)) {
    case 0:
      return check_bytes(std::as_bytes(bytes.rest()), 1);
    case 1:
    case 2:
      return check_body(bytes);
    case 3:
    case 4:
      return Slots(bytes).run();
    case 5:
      bytes.flag() ? check_names(bytes) : check_adoption_of_others(bytes);
      return;
    default:
      return FuzzedTakeover(bytes).run();
  }
}

}  // namespace
}  // namespace muster::supervisor

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  muster::fuzz::Bytes bytes(data, size);
  muster::supervisor::run(bytes);
  return 0;
}
