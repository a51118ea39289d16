#include "api/base/named_path.hpp"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

namespace muster {
namespace {

namespace fs = std::filesystem;

// "run" of "run/": file systems treat both alike.
std::string bare(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string above(const std::string& path) {
  const std::string bared = bare(path);
  const std::size_t cut = bared.rfind('/');
  if (cut == std::string::npos) return ".";
  return cut == 0 ? "/" : bare(bared.substr(0, cut));
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::status(path, ignored));
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// The fault of a link whose target is missing; else empty.
std::string dangling(const std::string& path) {
  std::error_code ignored;
  const std::string bared = bare(path);
  if (fs::symlink_status(bared, ignored).type() != fs::file_type::symlink) return "";
  if (fs::status(bared, ignored).type() != fs::file_type::not_found) return "";
  return fmt::format("{} is a link to {}, which is not there; remove the link, or name another place", bared,
                     fs::read_symlink(bared, ignored).string());
}

// The fault of the nearest existing thing above `path`, if no folder can be in it; else empty.
std::string blocked(const std::string& path) {
  for (std::string each = above(path); each != "." && each != "/"; each = above(each)) {
    if (std::string link = dangling(each); !link.empty()) return link;
    if (is_folder(each)) return "";
    if (is_there(each)) return fmt::format("{} is a file, so nothing can be in it; name another place", each);
  }
  return "";
}

// The fault of a path whose folder is missing; else empty.
std::string placeless(const std::string& path) {
  const std::string folder = above(path);
  std::error_code ignored;
  if (fs::status(folder, ignored).type() != fs::file_type::not_found) return "";
  return fmt::format("there is no folder {}; make it first, or name another place", folder);
}

}  // namespace

std::string fault_of_place(const std::string& path) {
  std::string in_the_way = blocked(path);
  return in_the_way.empty() ? placeless(path) : in_the_way;
}

std::string fault_of_new_file(const std::string& path) {
  if (is_folder(path)) return fmt::format("{} is a folder; name a file, such as {}/NAME", path, bare(path));
  if (std::string link = dangling(path); !link.empty()) return link;
  if (std::string in_the_way = blocked(path); !in_the_way.empty()) return in_the_way;
  if (const std::string none = placeless(path); !none.empty())
    return fmt::format("{} cannot be written: {}", path, none);
  if (path.ends_with('/') && !is_there(bare(path)))
    return fmt::format("{} is the name of a folder; name a file", path);
  return "";
}

std::string fault_of_new_folder(const std::string& path) {
  if (is_folder(path)) return "";
  if (std::string link = dangling(path); !link.empty()) return link;
  if (is_there(bare(path))) return fmt::format("{} is a file; name a folder", bare(path));
  return blocked(path);
}

std::string fault_of_folder(const std::string& path, const std::string& holds) {
  if (is_folder(path)) return "";
  if (std::string fault = fault_of_new_folder(path); !fault.empty())
    return is_there(bare(path)) ? fmt::format("{} is a file; {}", bare(path), holds) : fault;
  std::error_code error;
  if (fs::status(path, error).type() != fs::file_type::not_found) return "";  // this user may not look
  return fmt::format("there is no folder {}; {}", path, holds);
}

}  // namespace muster
