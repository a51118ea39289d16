#include "api/examples/train_lm/checkpoint.hpp"

#include <cstring>
#include <iostream>

namespace train_lm {
namespace {

// The user's state of a checkpoint. Batches depend on all of it.
struct Position {
  std::int64_t next_step;
  std::uint64_t seed;
  std::int64_t batch, context;
  std::uint64_t text_bytes;
};

constexpr const char* kParts[] = {"", ".moment1", ".moment2"};

void check_same(const char* what, std::uint64_t saved, std::uint64_t said, const std::string& folder) {
  if (saved == said) return;
  throw UsageError("the checkpoint in " + folder + " was made with " + what + " " + std::to_string(saved) +
                   ", but this run has " + std::to_string(said));
}

}  // namespace

Checkpoint::Checkpoint(Runtime& runtime, const Units& units, const Options& options, const Text& text)
    : runtime_(runtime), options_(options), text_bytes_(text.size()) {
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
  if (options_.elastic && !again) refuse_another_run();
  if (again) found = load(options_.save, options_.steps);
  if (!found && !options_.resume.empty()) found = load(options_.resume, options_.steps - 1);
  return start_ = found.value_or(0);
}

// Else the ranks that are left would go on from its weights.
void Checkpoint::refuse_another_run() const {
  if (options_.save == options_.resume) return;
  std::size_t count = 0;
  check(muster_checkpoint_list(folder_.get(), nullptr, 0, &count));
  if (count > 0)
    throw UsageError("the folder " + options_.save +
                     " has checkpoints of another run; go on from them by "
                     "--resume " +
                     options_.save + ", or choose another folder for --save");
}

std::optional<std::int64_t> Checkpoint::load(const std::string& path, std::int64_t most_steps) const {
  const Folder folder = open(path, 0);
  muster_checkpoint_info info = MUSTER_CHECKPOINT_INFO_INIT;
  const muster_status_t found = muster_checkpoint_query(folder.get(), nullptr, &info);
  if (found == MUSTER_ERR_NOT_FOUND) return std::nullopt;
  check(found);
  Position position{};
  if (info.user_bytes != sizeof position)
    throw UsageError(path + "/" + info.name + " was not made by train_lm");
  muster_checkpoint_load_options said = MUSTER_CHECKPOINT_LOAD_OPTIONS_INIT;
  said.name = info.name;
  said.tensors = tensors_.data();
  said.tensor_count = tensors_.size();
  said.user = &position;
  said.user_capacity = sizeof position;
  check(muster_checkpoint_load(folder.get(), &said, nullptr));
  check_same("--seed", position.seed, options_.seed, path);
  check_same("--batch", static_cast<std::uint64_t>(position.batch),
             static_cast<std::uint64_t>(options_.batch), path);
  check_same("--context", static_cast<std::uint64_t>(position.context),
             static_cast<std::uint64_t>(options_.context), path);
  check_same("a text of bytes", position.text_bytes, text_bytes_, path);
  if (position.next_step > most_steps)
    throw UsageError("the checkpoint in " + path + " has done " + std::to_string(position.next_step) +
                     " steps; choose more --steps");
  if (runtime_.rank() == 0) std::cerr << "train_lm: goes on from " + path + "/" + info.name + "\n";
  return position.next_step;
}

bool Checkpoint::is_due(std::int64_t steps_done) const {
  if (folder_ == nullptr || steps_done == start_) return false;
  return steps_done == options_.steps || (options_.save_every > 0 && steps_done % options_.save_every == 0);
}

void Checkpoint::save(std::int64_t steps_done, muster_point updated) {
  check(muster_checkpoint_wait(folder_.get()));  // one save in flight
  runtime_.wait(updated);
  const Position position{steps_done, options_.seed, options_.batch, options_.context, text_bytes_};
  muster_checkpoint_save_options said = MUSTER_CHECKPOINT_SAVE_OPTIONS_INIT;
  said.flags = MUSTER_CHECKPOINT_REPLACE;  // of a run that has come this far already, and was resumed before
  said.step = static_cast<std::uint64_t>(steps_done);
  said.tensors = tensors_.data();
  said.tensor_count = tensors_.size();
  said.user = &position;
  said.user_bytes = sizeof position;
  check(muster_checkpoint_save_async(folder_.get(), &said));
}

void Checkpoint::finish() {
  if (folder_ != nullptr) check(muster_checkpoint_wait(folder_.get()));
}

}  // namespace train_lm
