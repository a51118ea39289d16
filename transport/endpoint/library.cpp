#include "transport/endpoint/library.hpp"

#include <dlfcn.h>
#include <unistd.h>

namespace muster::transport {

std::vector<std::string> network_names() {
  return {"ucx", "ofi"};
}

Result<std::unique_ptr<Network>> open_network(const std::string& folder, const std::string& name,
                                              NodeIndex here, const InterfaceChoice& choice) {
  const std::string file = fmt::format("{}/{}.so", folder, name);
  if (access(file.c_str(), R_OK) != 0)
    return fail(Code::kNotFound, "{}: this build has no such module", file);
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return fail(Code::kUnsupported, "{}", dlerror());
  const auto* module = static_cast<const NetworkModule*>(dlsym(library, "muster_network_module"));
  if (module == nullptr || module->version != NetworkModule::kVersion)
    return fail(Code::kVersion, "{} belongs to another build; install the same release of all", file);
  std::unique_ptr<Network> network;
  MUSTER_RETURN_IF_ERROR(module->open(here, choice, &network));
  return network;
}

}  // namespace muster::transport
