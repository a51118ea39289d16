// Writes the generated files of deploy/ into the folder given.
#include "deploy/pages/pages.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  for (const muster::pages::Page& page : muster::pages::all_pages()) {
    const std::filesystem::path path = std::filesystem::path(argv[1]) / page.path;
    std::error_code ignored;  // opening the file reports it
    std::filesystem::create_directories(path.parent_path(), ignored);
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << page.text;
    file.close();
    if (!file) {
      std::fprintf(stderr, "%s: cannot be written\n", path.c_str());
      return 1;
    }
  }
  return 0;
}
