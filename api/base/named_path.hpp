// What is wrong with a path that a user has named: a folder in the place of a file, a link to nothing, a
// folder that is missing. Each answer is a sentence with its remedy, or empty: the path hinders nothing then,
// and what a call on it still refuses has another reason.
#pragma once

#include <string>

namespace muster {

// Of a file that is to be written. What can be written over is no fault, and neither is a link to it.
std::string fault_of_new_file(const std::string& path);

// Of a folder that is to be made where it is missing, with all above it.
std::string fault_of_new_folder(const std::string& path);

// Of a folder that is to be read, and so must be there. `holds` says what it should be, as "a checkpoint is a
// folder that has metadata.json".
std::string fault_of_folder(const std::string& path, const std::string& holds);

}  // namespace muster
