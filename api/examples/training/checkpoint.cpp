#include "api/examples/training/checkpoint.hpp"

#include "api/examples/training/errors.hpp"

#include <filesystem>
#include <iostream>
#include <string_view>

namespace training {
namespace {

namespace fs = std::filesystem;

constexpr const char* kParts[] = {"", ".moment1", ".moment2"};

// Two paths may name one folder.
bool is_same_folder(const std::string& a, const std::string& b) {
  const auto plain = [](const std::string& path) {
    std::error_code error;
    fs::path whole = fs::weakly_canonical(fs::absolute(path, error), error);
    if (error) whole = fs::path(path).lexically_normal();
    return whole.has_filename() ? whole : whole.parent_path();
  };
  return plain(a) == plain(b);
}

// The meaning of --resume or --save: the folder of a run, or one checkpoint in it.
struct Named {
  std::string folder;
  std::string checkpoint;  // empty: the newest one
};

Named named_by(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path + "/metadata.json", error)) return {path, ""};
  fs::path whole = fs::absolute(path, error).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  return {whole.parent_path().string(), whole.filename().string()};
}

}  // namespace

void refuse_made_otherwise(const std::string& shown, const std::string& what, const std::string& saved,
                           const std::string& said) {
  throw UsageError("the checkpoint in " + shown + " was made with " + what + " " + saved +
                   ", but this run has " + said);
}

Checkpoint::Checkpoint(Runtime& runtime, const Units& units, const CheckpointOptions& options,
                       const SavedState& state)
    : runtime_(runtime), options_(options), state_(state) {
  if (options.save.empty() && options.resume.empty()) return;
  std::vector<muster_tensor> arrays;
  for (std::size_t unit = 0; unit < units.count(); ++unit)
    for (std::size_t i = 0; i < units.parameters(unit).size(); ++i) {
      layouts_.emplace_back(units.layout(unit, i));
      for (const muster_tensor& array : units.saved(unit, i)) arrays.push_back(array);
      for (const char* part : kParts) names_.push_back(units.parameters(unit)[i].name + part);
    }
  for (std::size_t i = 0; i < names_.size(); ++i)  // names stay where they are from here on
    tensors_.push_back({names_[i].c_str(), layouts_[i / std::size(kParts)].get(), arrays[i]});
  if (!options.save.empty()) folder_ = open(options.save, options.keep);
}

Checkpoint::Folder Checkpoint::open(const std::string& path, std::uint32_t keep) const {
  muster_checkpoints_options said = MUSTER_CHECKPOINTS_OPTIONS_INIT;
  said.folder = path.c_str();
  said.keep = keep;
  said.group = runtime_.group("world");
  muster_checkpoints* folder = nullptr;
  check(muster_checkpoints_open(runtime_.session(), &said, &folder));
  return Folder(folder);
}

std::int64_t Checkpoint::resume(bool again) {
  std::optional<std::int64_t> found;
  if (!options_.save.empty() && !again) refuse_another_run();
  if (again) found = load(options_.save, options_.steps);
  if (!found && !options_.resume.empty()) found = load(options_.resume, options_.steps - 1);
  const bool first_run = !options_.save.empty() && !options_.resume.empty() &&
                         is_same_folder(options_.save, named_by(options_.resume).folder);
  if (!found && !again && !options_.resume.empty() && !first_run)
    throw UsageError(
        "there is no checkpoint in " + options_.resume +
        ": name the folder of a run, or leave --resume out to begin at the first step; with --save "
        "of the same folder, a first run may have --resume too");
  if (!found && (again || !options_.resume.empty()) && runtime_.rank() == 0)
    std::cerr << options_.program + ": there is no checkpoint in " +
                     (again ? options_.save : options_.resume) + "; begins at the first step\n";
  return start_ = found.value_or(0);
}

// Else old checkpoints would be taken for this run's, and make room for them.
void Checkpoint::refuse_another_run() const {
  if (!options_.resume.empty() && is_same_folder(options_.save, named_by(options_.resume).folder)) return;
  std::size_t count = 0;
  check(muster_checkpoint_list(folder_.get(), nullptr, 0, &count));
  if (count > 0)
    throw UsageError("the folder " + options_.save +
                     " has checkpoints of another run; go on from them by "
                     "--resume " +
                     options_.save + ", or choose another folder for --save");
}

std::optional<std::int64_t> Checkpoint::load(const std::string& path, std::int64_t most_steps) const {
  const Named named = named_by(path);
  const Folder folder = open(named.folder, 0);
  muster_checkpoint_info info = MUSTER_CHECKPOINT_INFO_INIT;
  const char* name = named.checkpoint.empty() ? nullptr : named.checkpoint.c_str();
  const muster_status_t found = muster_checkpoint_query(folder.get(), name, &info);
  if (found == MUSTER_ERR_NOT_FOUND && name == nullptr) return std::nullopt;
  check(found);
  const std::string shown = named.folder + "/" + info.name;
  const std::int64_t next_step = load_state(folder.get(), info, shown);
  if (next_step > most_steps)
    throw UsageError("the checkpoint in " + path + " has done " + std::to_string(next_step) +
                     " steps; choose more --steps");
  load_tensors(folder.get(), info, shown);
  if (runtime_.rank() == 0)
    std::cerr << options_.program + ": goes on from " + shown +
                     (info.damaged == 0 ? ""
                                        : ", after " + std::to_string(info.damaged) + " that are damaged") +
                     "\n";
  return next_step;
}

// Refuses what another run has made, before anything of it is loaded.
std::int64_t Checkpoint::load_state(muster_checkpoints* folder, const muster_checkpoint_info& info,
                                    const std::string& shown) const {
  constexpr std::uint64_t kStateMax = 4096;
  if (info.user_bytes > kStateMax) throw UsageError(shown + " was not made by " + options_.program);
  std::vector<std::byte> saved(static_cast<std::size_t>(info.user_bytes));
  muster_checkpoint_load_options said = MUSTER_CHECKPOINT_LOAD_OPTIONS_INIT;
  said.name = info.name;
  said.user = saved.data();
  said.user_capacity = saved.size();
  check(muster_checkpoint_load(folder, &said, nullptr));
  return state_.next_step(saved, shown);
}

// A checkpoint that says nothing of its model must have its tensors, and no others.
void Checkpoint::load_tensors(muster_checkpoints* folder, const muster_checkpoint_info& info,
                              const std::string& shown) const {
  if (info.tensors != tensors_.size())
    throw UsageError(shown + " has " + std::to_string(info.tensors) + " tensors, but this model has " +
                     std::to_string(tensors_.size()));
  muster_checkpoint_load_options said = MUSTER_CHECKPOINT_LOAD_OPTIONS_INIT;
  said.name = info.name;
  said.tensors = tensors_.data();
  said.tensor_count = tensors_.size();
  const muster_status_t loaded = muster_checkpoint_load(folder, &said, nullptr);
  if (loaded == MUSTER_ERR_NOT_FOUND || loaded == MUSTER_ERR_BAD_ARGUMENT)
    throw UsageError(shown + " was made by another model: " + muster_last_error());
  check(loaded);
}

bool Checkpoint::is_due(std::int64_t steps_done) const {
  if (folder_ == nullptr || steps_done == start_) return false;
  return steps_done == options_.steps || (options_.save_every > 0 && steps_done % options_.save_every == 0);
}

void Checkpoint::save(std::int64_t steps_done, muster_point updated) {
  check(muster_checkpoint_wait(folder_.get()));  // one save in flight
  runtime_.wait(updated);
  const std::vector<std::byte> state = state_.bytes(steps_done);
  muster_checkpoint_save_options said = MUSTER_CHECKPOINT_SAVE_OPTIONS_INIT;
  said.flags = MUSTER_CHECKPOINT_REPLACE;  // of a run that has come this far already, and was resumed before
  said.step = static_cast<std::uint64_t>(steps_done);
  said.tensors = tensors_.data();
  said.tensor_count = tensors_.size();
  said.user = state.data();
  said.user_bytes = state.size();
  check(muster_checkpoint_save_async(folder_.get(), &said));
}

void Checkpoint::finish() {
  if (folder_ != nullptr) check(muster_checkpoint_wait(folder_.get()));
}

}  // namespace training
