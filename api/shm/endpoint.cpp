#include "api/shm/endpoint.hpp"

#include "api/base/bootstrap.hpp"
#include "api/base/words.hpp"

#include <sys/stat.h>

namespace muster::shm {
namespace {

bool is_directory(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

bool is_there(const std::string& path) {
  struct stat facts {};
  return lstat(path.c_str(), &facts) == 0;
}

std::string last_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

std::string above(const std::string& path) {
  const std::size_t cut = path.rfind('/');
  if (cut == std::string::npos) return ".";
  return cut == 0 ? "/" : path.substr(0, cut);
}

}  // namespace

std::string ranks_socket(const std::string& directory) {
  return directory + "/" + kRanksFolder + "/" + kRanksSocket;
}

std::string control_socket(const std::string& directory) {
  return directory + "/" + kControlSocket;
}

std::string directory_of(const std::string& endpoint) {
  if (is_directory(endpoint)) return endpoint;
  const std::string folder = above(endpoint);
  return last_of(folder) == kRanksFolder ? above(folder) : folder;
}

std::string ranks_socket_at(const std::string& endpoint) {
  if (is_directory(endpoint)) return ranks_socket(endpoint);
  if (last_of(endpoint) != kRanksSocket || is_there(endpoint)) return endpoint;
  const std::string moved = ranks_socket(above(endpoint));
  return is_there(moved) ? moved : endpoint;
}

std::string endpoint_option(const std::string& endpoint) {
  const bool usual = endpoint.empty() || directory_of(endpoint) == directory_of(bootstrap::kDefaultEndpoint);
  return usual ? "" : " --endpoint " + shell_word(endpoint);
}

}  // namespace muster::shm
