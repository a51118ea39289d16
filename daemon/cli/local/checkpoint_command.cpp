#include "daemon/cli/local/checkpoint_command.hpp"

#include "api/base/checkpoint/names.hpp"
#include "api/base/dtype.hpp"
#include "api/base/named_path.hpp"
#include "api/base/store/checkpoint_list.hpp"
#include "api/base/store/saved_folder.hpp"
#include "api/base/store/tensor_file.hpp"
#include "api/base/utf8.hpp"
#include "api/base/words.hpp"
#include "daemon/config/table.hpp"

#include <filesystem>
#include <utility>

namespace muster::cli {

using checkpoint::SavedTensor;
using store::SavedFolder;

namespace {

// A run's folder has checkpoints in it, and is none. A folder that is named as the metadata makes no
// checkpoint of it.
OrTrouble<bool> is_run(const std::string& path) {
  namespace fs = std::filesystem;
  const std::string metadata = path + "/" + checkpoint::kRecordFile;
  std::error_code error;
  const fs::file_status found = fs::status(metadata, error);
  if (found.type() == fs::file_type::none)
    return tl::unexpected(trouble_of(store::trouble("read", metadata, error.value())));
  if (fs::exists(found) && !fs::is_directory(found)) return false;
  const std::string fault = fault_of_folder(path, checkpoint::kFolderText);
  if (fault.empty()) return true;
  return tl::unexpected(Trouble{kNoObject, fault});
}

OrTrouble<SavedFolder> opened(const std::string& path) {
  const auto run = is_run(path);
  if (!run) return tl::unexpected(run.error());
  std::string chosen = path;
  if (*run) {
    auto newest = store::newest_checkpoint(path);
    if (!newest) return troubled(newest.error());
    for (const Status& damaged : newest->damaged) warn(damaged.message());
    chosen += "/" + newest->entry.name;
  }
  auto saved = SavedFolder::open(chosen);
  if (!saved) return troubled(saved.error());
  return *std::move(saved);
}

Json shape_of(const SavedTensor& tensor) {
  return tensor.extent();
}

Json tensor_json(const SavedTensor& tensor) {
  return {{"name", tensor.name},
          {"dtype", dtype_name(tensor.dtype)},
          {"shape", shape_of(tensor)},
          {"bytes", checkpoint::bytes_of(Box{tensor.dims, {}, tensor.shape}, tensor.dtype)},
          {"boxes", tensor.boxes.size()}};
}

Json checkpoint_json(const SavedFolder& saved) {
  Json tensors = Json::array();
  std::uint64_t user = 0;
  for (const SavedTensor& tensor : saved.record().tensors)
    if (tensor.name.empty())
      user = static_cast<std::uint64_t>(tensor.shape[0]);
    else
      tensors.push_back(tensor_json(tensor));
  return {{"checkpoint", saved.path()},           {"step", saved.record().step},
          {"bytes", saved.record().bytes()},      {"user_bytes", user},
          {"files", saved.record().files.size()}, {"notes", saved.record().notes},
          {"tensors", std::move(tensors)}};
}

// A line, if there are any. Values may be long: JSON shows them.
std::string notes_text(const checkpoint::CheckpointRecord::Notes& notes) {
  std::string keys;
  for (const auto& [key, value] : notes) keys += (keys.empty() ? "" : ", ") + printable(key, Lines::kOne);
  return notes.empty() ? "" : fmt::format("{}: {}\n", checkpoint::kNotesName, keys);
}

std::string checkpoint_text(const SavedFolder& saved) {
  std::vector<config::Cells> rows;
  std::uint64_t user = 0;
  for (const SavedTensor& tensor : saved.record().tensors) {
    const std::uint64_t bytes = checkpoint::bytes_of(Box{tensor.dims, {}, tensor.shape}, tensor.dtype);
    if (tensor.name.empty())
      user = bytes;
    else
      rows.push_back({tensor.name, dtype_name(tensor.dtype), to_text(tensor.extent()),
                      std::to_string(tensor.boxes.size()), bytes_text(bytes)});
  }
  return fmt::format("{}: step {}, {} in {} files, {} of the user's state\n", saved.path(),
                     saved.record().step, bytes_text(saved.record().bytes()), saved.record().files.size(),
                     bytes_text(user)) +
         notes_text(saved.record().notes) +
         config::table({"TENSOR", "DTYPE", "SHAPE", "BOXES", "BYTES"}, rows,
                       {config::screen_columns(), {"BOXES", "TENSOR"}});
}

std::vector<std::string> texts_of(const std::vector<Status>& refused) {
  std::vector<std::string> texts;
  for (const Status& each : refused) texts.push_back(each.message());
  return texts;
}

Trouble no_checkpoint(const std::string& path) {
  return {kNoObject, fmt::format("{} has no checkpoint", path)};
}

Trouble none_sound(const std::string& path) {
  return {kNoObject, fmt::format("{} has no checkpoint that can be read", path)};
}

int inspect_run(const std::string& path, Output output) {
  std::vector<Status> refused;
  const auto entries = store::list_checkpoints(path, &refused);
  if (!entries) return complain(trouble_of(entries.error()));
  const std::vector<std::string> damaged = texts_of(refused);
  for (const std::string& text : damaged) warn(text);
  Json all = Json::array();
  std::vector<config::Cells> rows;
  for (const store::CheckpointEntry& entry : *entries) {
    all.push_back(
        {{"name", entry.name}, {"step", entry.step}, {"bytes", entry.bytes}, {"tensors", entry.tensors}});
    rows.push_back(
        {entry.name, std::to_string(entry.step), std::to_string(entry.tensors), bytes_text(entry.bytes)});
  }
  int code = kOk;
  if (rows.empty()) code = damaged.empty() ? complain(no_checkpoint(path)) : complain(none_sound(path));
  if (output == Output::kJson) {
    const int printed = print_json({{"run", path}, {"checkpoints", all}, {"damaged", damaged}});
    return code == kOk ? printed : code;
  }
  if (rows.empty()) return code;
  return print_text(config::table({"CHECKPOINT", "STEP", "TENSORS", "BYTES"}, rows,
                                  {config::screen_columns(), {"TENSORS", "CHECKPOINT"}}));
}

// The damage of one checkpoint; empty: the checkpoint is sound.
std::string damage_of(const std::string& path) {
  auto saved = SavedFolder::open(path);
  if (!saved) return saved.error().message();
  return saved->verify().message();
}

}  // namespace

int run_checkpoint_inspect(const CheckpointQuestion& question, Output output) {
  const auto run = is_run(question.path);
  if (!run) return complain(run.error());
  if (*run) return inspect_run(question.path, output);
  const auto saved = opened(question.path);
  if (!saved) return complain(saved.error());
  return output == Output::kJson ? print_json(checkpoint_json(*saved)) : print_text(checkpoint_text(*saved));
}

int run_checkpoint_verify(const CheckpointQuestion& question, Output output) {
  const auto run = is_run(question.path);
  if (!run) return complain(run.error());
  std::vector<std::string> damaged, paths{question.path};
  if (*run) {
    std::vector<Status> refused;
    const auto entries = store::list_checkpoints(question.path, &refused);
    if (!entries) return complain(trouble_of(entries.error()));
    damaged = texts_of(refused);
    paths.clear();
    for (const store::CheckpointEntry& entry : *entries) paths.push_back(question.path + "/" + entry.name);
    if (paths.empty() && damaged.empty()) return complain(no_checkpoint(question.path));
  }
  std::vector<std::string> sound;
  for (const std::string& path : paths) {
    std::string damage = damage_of(path);
    if (damage.empty())
      sound.push_back(path);
    else
      damaged.push_back(std::move(damage));
  }
  if (output == Output::kJson) {
    const int printed = print_json({{"sound", sound}, {"damaged", damaged}});
    return damaged.empty() ? printed : kFailed;
  }
  for (const std::string& path : sound)
    if (const int code = print_text(path + ": every byte is as it was saved\n"); code != kOk) return code;
  for (const std::string& text : damaged) complain({kFailed, text});
  return damaged.empty() ? kOk : kFailed;
}

int run_checkpoint_export(const CheckpointQuestion& question, Output output) {
  if (const std::string fault = fault_of_new_file(question.file); !fault.empty())
    return complain({kFailed, "-o: " + fault});
  auto saved = opened(question.path);
  if (!saved) return complain(saved.error());
  const Status status = store::export_tensors(*saved, question.file, {question.only, question.exclude});
  if (!status.ok()) return complain(trouble_of(status));
  if (output == Output::kJson)
    return print_json(
        {{"checkpoint", saved->path()}, {"step", saved->record().step}, {"file", question.file}});
  return print_text(
      fmt::format("wrote {} from {}, step {}\n", question.file, saved->path(), saved->record().step));
}

int run_checkpoint_import(const CheckpointQuestion& question, Output output) {
  const std::string name = question.name.empty() ? checkpoint::step_name(question.step) : question.name;
  const auto imported = store::import_tensors(question.files, question.path, name, question.step,
                                              {question.only, question.exclude});
  if (!imported) {
    Trouble trouble = trouble_of(imported.error());
    if (trouble.code == Code::kDuplicate)
      trouble.text += "; choose another name with --name or --step, or remove it";
    return complain(trouble);
  }
  for (const std::string& text : imported->differences) warn(text);
  const std::string made = question.path + "/" + name;
  if (output == Output::kJson)
    return print_json({{"checkpoint", made},
                       {"step", question.step},
                       {"files", imported->files},
                       {"tensors", imported->tensors},
                       {"bytes", imported->bytes}});
  const std::string from =
      imported->files == 1 ? question.files.front() : fmt::format("{} files", imported->files);
  return print_text(fmt::format("made {} from {}: {} {}, {}\n", made, from, imported->tensors,
                                imported->tensors == 1 ? "tensor" : "tensors", bytes_text(imported->bytes)));
}

}  // namespace muster::cli
