// Checks of a path that a user has named. Possible faults: a folder in the place of a file, a link to
// nothing, a missing folder. Each answer is a sentence with its remedy, or empty. If it is empty and a call
// on the path still fails, the failure has another reason.
#pragma once

#include <string>

namespace muster {

// Checks that the folder of `path` exists, so that something can be made in it.
std::string fault_of_place(const std::string& path);

// Checks a file to be written. A file that can be overwritten is no fault, and neither is a link to one.
std::string fault_of_new_file(const std::string& path);

// Checks a folder to be made where it is missing, with all folders above it.
std::string fault_of_new_folder(const std::string& path);

// Checks a folder to be read, which must exist. `holds` says what it should be, as "a checkpoint is a folder
// that has metadata.json".
std::string fault_of_folder(const std::string& path, const std::string& holds);

}  // namespace muster
