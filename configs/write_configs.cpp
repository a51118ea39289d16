// Writes the generated files of configs/ into the folder given: musterd.yaml and the JSON Schemas.
#include "daemon/config/cluster.hpp"
#include "daemon/config/render.hpp"
#include "daemon/config/schema.hpp"
#include "daemon/config/settings.hpp"

#include <cstdio>
#include <fstream>
#include <string>

namespace {

bool write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) std::fprintf(stderr, "%s: cannot be written\n", path.c_str());
  return static_cast<bool>(file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  namespace config = muster::config;
  const std::string folder = argv[1];
  const bool good =
      write(folder + "/musterd.yaml", config::settings_yaml()) &&
      write(folder + "/schema/musterd.schema.json",
            config::json_schema(config::settings_keys(), "musterd.schema.json", "musterd settings")) &&
      write(folder + "/schema/cluster.schema.json",
            config::json_schema(config::cluster_keys(), "cluster.schema.json", "Muster cluster"));
  return good ? 0 : 1;
}
