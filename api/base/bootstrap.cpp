#include "api/base/bootstrap.hpp"

#include "api/base/variables.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::bootstrap {
namespace {

constexpr const char* kSlurm = "slurm";

constexpr std::array kLaunchers{
    Launcher{"muster", "MUSTER_RANK", "MUSTER_WORLD_SIZE", "MUSTER_LOCAL_RANK", "MUSTER_LOCAL_SIZE", nullptr,
             "", nullptr, nullptr},
    // Without --rdzv-id the id of every run is "none".
    Launcher{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID",
             "torchrun-", "MASTER_PORT", "none"},
    Launcher{"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
             "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_MCA_ess_base_jobid", "openmpi-", nullptr, nullptr},
    Launcher{kSlurm, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "SLURM_JOB_ID",
             "slurm-", "SLURM_STEP_ID", nullptr},
    Launcher{"mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr, "", nullptr,
             nullptr},
};

constexpr std::size_t kKeyLineBytes = 258;  // 255, a line end of two bytes, and the end of the text

Result<std::int32_t> number(const char* variable, const std::string& text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    return fail(Code::kBadArgument, "{}='{}' is not a whole number in 0..2147483647", variable, text);
  return value;
}

// -1 if the variable has no plain number: some launchers do not set it, and Slurm writes forms like "2(x3)".
std::int32_t number_or_none(const Lookup& lookup, const char* variable) {
  const auto text = lookup(variable);
  if (!text) return -1;
  const auto value = number(variable, *text);
  return value ? *value : -1;
}

// A job's name may hold letters, digits, '.', '_' and '-'.
std::string job_name(std::string text) {
  constexpr std::size_t kBytesMax = 63;
  for (char& c : text) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '_' || c == '-';
    if (!good) c = '_';
  }
  if (text.size() > kBytesMax) text.resize(kBytesMax);
  return text;
}

// The launcher's id of the run; empty if it has none.
std::string run_of(const Lookup& lookup, const Launcher& launcher) {
  const auto id = launcher.job != nullptr ? lookup(launcher.job) : std::nullopt;
  if (!id || id->empty()) return "";
  const bool asked = launcher.apart != nullptr && (launcher.unsaid == nullptr || *id == launcher.unsaid);
  const auto more = asked ? lookup(launcher.apart) : std::nullopt;
  return job_name(launcher.job_prefix + *id + (more ? "." + *more : ""));
}

Result<const Launcher*> choose(const Lookup& lookup) {
  if (const auto forced = lookup("MUSTER_BOOTSTRAP")) {
    std::string names;
    for (const Launcher& launcher : kLaunchers) {
      if (*forced == launcher.name) return &launcher;
      names += fmt::format("{}{}", names.empty() ? "" : ", ", launcher.name);
    }
    return fail(Code::kBadArgument, "MUSTER_BOOTSTRAP='{}' is no launcher; it is one of {}", *forced, names);
  }
  for (const Launcher& launcher : kLaunchers)
    if (lookup(launcher.rank) && lookup(launcher.world_size)) return &launcher;
  return nullptr;
}

// A batch script has the variables of its job's first task, but only srun starts tasks.
Status check_step(const Lookup& lookup, const LaunchedRank& identity) {
  constexpr std::int64_t kStepsOfSrun = 0xfffffff0;  // above are Slurm's own: batch, extern, interactive
  const auto step = lookup("SLURM_STEP_ID");
  std::int64_t number = 0;
  const bool known =
      step && std::from_chars(step->data(), step->data() + step->size(), number).ec == std::errc();
  const bool is_first = identity.rank == 0 && identity.world_size > 1;
  if (!is_first || (known && number < kStepsOfSrun)) return {};
  return failure(
      Code::kBadArgument,
      "this process is no task of Slurm job {}, though that has {}: srun has not started it. Start it "
      "with srun, or set MUSTER_RANK and MUSTER_WORLD_SIZE",
      lookup("SLURM_JOB_ID").value_or("?"), identity.world_size);
}

Status read_ranks(const Lookup& lookup, const Launcher& launcher, LaunchedRank& identity) {
  const auto rank = lookup(launcher.rank);
  const auto size = lookup(launcher.world_size);
  if (!rank || !size)
    return failure(Code::kBadArgument, "{} is not set, but MUSTER_BOOTSTRAP={} asks for it",
                   !rank ? launcher.rank : launcher.world_size, launcher.name);
  MUSTER_ASSIGN_OR_RETURN(identity.rank, number(launcher.rank, *rank));
  MUSTER_ASSIGN_OR_RETURN(identity.world_size, number(launcher.world_size, *size));
  if (identity.rank >= identity.world_size)
    return failure(Code::kBadArgument, "{}={} is not below {}={}", launcher.rank, identity.rank,
                   launcher.world_size, identity.world_size);
  if (std::string_view(launcher.name) == kSlurm) identity.doubt = check_step(lookup, identity);
  identity.local_rank = number_or_none(lookup, launcher.local_rank);
  identity.local_size = number_or_none(lookup, launcher.local_size);
  if (&launcher == &kLaunchers.front())  // of our own variables the optional ones must be numbers too
    for (const char* variable : {launcher.local_rank, launcher.local_size})
      if (const auto text = lookup(variable))
        if (const auto value = number(variable, *text); !value) return value.error();
  identity.launcher = launcher.name;
  identity.job = run_of(lookup, launcher);
  return {};
}

}  // namespace

Lookup process_environment() {
  return [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

std::span<const Launcher> launchers() {
  return kLaunchers;
}

Result<std::optional<std::string>> non_empty(const Lookup& lookup, std::string_view name) {
  auto value = lookup(name);
  if (value && value->empty())
    return fail(Code::kBadArgument, "{} is empty: set it, or take it out of the environment (unset {})", name,
                name);
  return value;
}

std::optional<std::string> missing_half(const Lookup& lookup) {
  const Launcher& ours = kLaunchers.front();
  const bool rank = lookup(ours.rank).has_value();
  if (rank == lookup(ours.world_size).has_value()) return std::nullopt;
  const char* set = rank ? ours.rank : ours.world_size;
  return fmt::format("{}={} is set, but {} is missing; set both, or start with `muster run`", set,
                     *lookup(set), rank ? ours.world_size : ours.rank);
}

Result<std::string> job_key(const Lookup& lookup) {
  MUSTER_ASSIGN_OR_RETURN(const auto said, non_empty(lookup, "MUSTER_JOB_KEY"));
  MUSTER_ASSIGN_OR_RETURN(const auto path, non_empty(lookup, "MUSTER_JOB_KEY_FILE"));
  if (!path) return said.value_or("");
  if (said)
    return fail(Code::kBadArgument, "MUSTER_JOB_KEY and MUSTER_JOB_KEY_FILE are both set; unset one of them");
  // A pipe would block, and be empty for its next reader.
  const int file = ::open(path->c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat facts {};
  const bool is_open = file >= 0 && ::fstat(file, &facts) == 0;
  const bool is_plain = is_open && S_ISREG(facts.st_mode);
  std::string key(kKeyLineBytes, '\0');
  const ssize_t bytes = is_plain ? ::read(file, key.data(), key.size()) : -1;
  const std::string why = std::generic_category().message(errno);
  if (file >= 0) ::close(file);
  if (is_open && !is_plain)
    return fail(Code::kBadArgument, "MUSTER_JOB_KEY_FILE: {} is no plain file; write the key into one",
                *path);
  if (bytes < 0) return fail(Code::kBadArgument, "MUSTER_JOB_KEY_FILE: {} cannot be read: {}", *path, why);
  key.resize(static_cast<std::size_t>(bytes));
  const std::size_t end = std::min(key.find('\n'), key.size());
  const bool is_whole = end < kKeyLineBytes - 1;
  key.resize(end);
  if (key.ends_with('\r')) key.pop_back();
  if (!is_whole || key.empty() || key.find('\0') != std::string::npos)
    return fail(Code::kBadArgument,
                "MUSTER_JOB_KEY_FILE: {} has no key: its first line must be a text of 16 to 255 bytes",
                *path);
  return key;
}

Result<LaunchedRank> identify(const Lookup& lookup) {
  for (const Variable& variable : rank_variables())
    if (const auto value = non_empty(lookup, variable.name); !value) return fail(value.error());
  LaunchedRank identity;
  identity.endpoint = lookup(kEndpointVariable).value_or(kDefaultEndpoint);
  identity.mesh = lookup("MUSTER_MESH").value_or("");
  identity.token = lookup("MUSTER_TOKEN").value_or("");
  MUSTER_ASSIGN_OR_RETURN(identity.key, job_key(lookup));
  if (const auto job = lookup("SLURM_JOB_ID"); job && !job->empty()) {
    const auto step = lookup("SLURM_STEP_ID");
    identity.slurm = step ? *job + "." + *step : *job;
  }
  MUSTER_ASSIGN_OR_RETURN(const Launcher* launcher, choose(lookup));
  if (launcher != nullptr) MUSTER_RETURN_IF_ERROR(read_ranks(lookup, *launcher, identity));
  if (const auto job = lookup("MUSTER_JOB")) identity.job = *job;
  return identity;
}

}  // namespace muster::bootstrap
