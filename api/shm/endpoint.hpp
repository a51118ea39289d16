// The sockets of a daemon, and how an endpoint names them.
//
//   DIRECTORY/control.sock        0600: for the user that governs the daemon
//   DIRECTORY/ranks/musterd.sock  0666: for all that may pass through DIRECTORY; a container mounts `ranks`
//   DIRECTORY/daemon              0700: the daemon's lock and its files
//
// An endpoint is the path of the ranks' socket, or DIRECTORY. DIRECTORY/musterd.sock, where releases before
// 0.3 listened, means the ranks' socket too.
#pragma once

#include <cstddef>
#include <string>

namespace muster::shm {

inline constexpr const char* kRanksFolder = "ranks";
inline constexpr const char* kRanksSocket = "musterd.sock";
inline constexpr const char* kControlSocket = "control.sock";
inline constexpr const char* kOwnFolder = "daemon";
inline constexpr std::size_t kRuntimeDirectoryMax =
    88;  // sockaddr_un.sun_path, less the socket's folder and name

std::string ranks_socket(const std::string& directory);
std::string control_socket(const std::string& directory);

// DIRECTORY.
std::string directory_of(const std::string& endpoint);
// The ranks' socket. It looks at the file system: a container may have mounted `ranks` at another place. If
// nothing is there, the endpoint itself, which an error then names.
std::string ranks_socket_at(const std::string& endpoint);
// The option with which a command of `muster` asks this daemon: " --endpoint ENDPOINT". Empty for the usual
// daemon of the machine, which needs none, and for an empty endpoint.
std::string endpoint_option(const std::string& endpoint);

}  // namespace muster::shm
