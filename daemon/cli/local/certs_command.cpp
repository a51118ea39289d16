#include "daemon/cli/local/certs_command.hpp"

#include "api/base/named_path.hpp"
#include "daemon/config/hostlist.hpp"
#include "daemon/control/link/clocks.hpp"
#include "daemon/control/link/tls.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace muster::cli {
namespace {

namespace fs = std::filesystem;
using control::CertifiedKey;

constexpr char kAuthority[] = "authority";
constexpr char kKeySuffix[] = "-key.pem";
constexpr mode_t kPublic = 0644;
constexpr mode_t kSecret = 0600;

Status file_failure(const std::string& path, const char* what) {
  return failure(Code::kNoResource, "{}: {}: {}", path, what, std::strerror(errno));
}

// The file is there whole, with that mode, or it is as it was.
Status write_file(const std::string& path, const std::string& text, mode_t mode) {
  const std::string partial = path + ".partial";
  ::unlink(partial.c_str());
  const int file = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file < 0) return file_failure(partial, "cannot be made");
  const bool written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       ::fchmod(file, mode) == 0 && ::fsync(file) == 0;
  Status status = written ? Status() : file_failure(partial, "cannot be written");
  ::close(file);
  if (status.ok() && ::rename(partial.c_str(), path.c_str()) != 0)
    status = file_failure(path, "cannot be made");
  if (!status.ok()) ::unlink(partial.c_str());
  return status;
}

std::string path_of(const CertsQuestion& question, std::string_view name, const char* suffix) {
  return fmt::format("{}/{}{}", question.folder, name, suffix);
}

// The key first: a certificate without its key is of no use to anybody.
Status write_pair(const CertsQuestion& question, std::string_view name, const CertifiedKey& made) {
  MUSTER_RETURN_IF_ERROR(write_file(path_of(question, name, kKeySuffix), made.key, kSecret));
  return write_file(path_of(question, name, ".pem"), made.certificate, kPublic);
}

Result<std::string> text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file.good() && text.str().empty())
    return fail(Code::kNotFound, "{} cannot be read; `muster certs init` makes an authority", path);
  return text.str();
}

// The nodes, where words may be ranges, as in a cluster file: node[01-16].
OrTrouble<std::vector<std::string>> nodes_of(const CertsQuestion& question) {
  std::vector<std::string> nodes;
  for (const std::string& word : question.nodes) {
    if (word.find_first_of("[,") == std::string::npos) {
      nodes.push_back(word);
      continue;
    }
    const auto names = config::expand_hosts(word);
    if (!names) {
      const config::Complaint& why = names.error();
      return usage(fmt::format("node '{}': {}{}", word, why.message,
                               why.suggestion.empty() ? "" : "; " + why.suggestion));
    }
    nodes.insert(nodes.end(), names->begin(), names->end());
  }
  return nodes;
}

// A folder that `muster certs init` has filled.
std::optional<Trouble> check_folder(const CertsQuestion& question) {
  const std::string fault =
      fault_of_folder(question.folder, "`muster certs init` makes an authority in a folder");
  return fault.empty() ? std::nullopt : std::optional(Trouble{kNoObject, "--folder: " + fault});
}

Result<CertifiedKey> authority_in(const CertsQuestion& question) {
  MUSTER_ASSIGN_OR_RETURN(std::string certificate, text_of(path_of(question, kAuthority, ".pem")));
  MUSTER_ASSIGN_OR_RETURN(std::string key, text_of(path_of(question, kAuthority, kKeySuffix)));
  return CertifiedKey{std::move(certificate), std::move(key)};
}

// By the clock of this machine; each daemon goes by its own.
Result<control::Validity> dates_of(const std::string& whose, const std::string& certificate,
                                   control::WallTime now) {
  MUSTER_ASSIGN_OR_RETURN(const control::Validity dates, control::validity_of(certificate));
  const std::string outside = control::outside_dates(whose, dates, now, "the clock of this machine");
  if (!outside.empty()) return fail(Code::kDenied, "{}", outside);
  return dates;
}

struct NodeFiles {
  std::string name;
  control::Credentials credentials;
  control::WallTime good_until;
};

Result<NodeFiles> node_in(const CertsQuestion& question, const std::string& name,
                          const std::string& authority, control::WallTime now) {
  MUSTER_ASSIGN_OR_RETURN(std::string certificate, text_of(path_of(question, name, ".pem")));
  MUSTER_ASSIGN_OR_RETURN(std::string key, text_of(path_of(question, name, kKeySuffix)));
  MUSTER_ASSIGN_OR_RETURN(const std::string cluster, control::cluster_of(authority));
  MUSTER_ASSIGN_OR_RETURN(const control::Validity dates, dates_of("its certificate", certificate, now));
  MUSTER_ASSIGN_OR_RETURN(
      control::Credentials credentials,
      control::Credentials::of_certificates(cluster, authority, {std::move(certificate), std::move(key)}));
  return NodeFiles{name, std::move(credentials), dates.until};
}

// Carries bytes between a client and a server until they know each other, or one refuses the other.
Status shake_hands(const NodeFiles& client, const NodeFiles& server, control::WallTime now) {
  using control::TlsStream;
  MUSTER_ASSIGN_OR_RETURN(TlsStream asks,
                          TlsStream::begin(client.credentials, TlsStream::Role::kClient, server.name, now));
  MUSTER_ASSIGN_OR_RETURN(TlsStream answers,
                          TlsStream::begin(server.credentials, TlsStream::Role::kServer, "", now));
  while (!asks.established() || !answers.established()) {
    const auto at_server = answers.receive(asks.take_wire());
    if (!at_server) return failure(Code::kDenied, "node {}: {}", client.name, at_server.error().message());
    const auto at_client = asks.receive(answers.take_wire());
    if (!at_client) return failure(Code::kDenied, "node {}: {}", server.name, at_client.error().message());
    for (const TlsStream* end : {&asks, &answers})
      if (Status outside = end->outside_dates(); !outside.ok()) return outside;  // one between them
  }
  if (answers.peer() == client.name) return {};
  return failure(Code::kDenied, "the files of node {} are those of node {}", client.name, answers.peer());
}

std::chrono::seconds life_of(const CertsQuestion& question, std::chrono::days usual) {
  return question.days > 0 ? std::chrono::days(question.days) : usual;
}

}  // namespace

int run_certs_init(const CertsQuestion& question, control::WallTime now, Output output) {
  for (const char* suffix : {".pem", kKeySuffix}) {
    std::error_code ignored;
    if (const std::string path = path_of(question, kAuthority, suffix); fs::exists(path, ignored))
      return complain(
          {kFailed, fmt::format("{} is there already; nodes that it has certified would be strangers "
                                "to a new one. Choose another --folder, or remove it",
                                path)});
  }
  const auto made =
      control::make_authority(question.cluster, now, life_of(question, control::kAuthorityLife));
  if (!made) return complain(trouble_of(made.error()));
  if (const std::string fault = fault_of_new_folder(question.folder); !fault.empty())
    return complain({kFailed, "--folder: " + fault});
  std::error_code failed;
  fs::create_directories(question.folder, failed);
  if (failed) return complain({kFailed, fmt::format("{}: {}", question.folder, failed.message())});
  if (const Status written = write_pair(question, kAuthority, *made); !written.ok())
    return complain(trouble_of(written));
  const std::string certificate = path_of(question, kAuthority, ".pem");
  const std::string key = path_of(question, kAuthority, kKeySuffix);
  if (output == Output::kJson)
    return print_json({{"cluster", question.cluster}, {"certificate", certificate}, {"key", key}});
  return print_text(
      fmt::format("{}: every node of cluster {} believes what it has signed\n"
                  "{}: keep it where no node is; it signs nodes (muster certs node)\n",
                  certificate, question.cluster, key));
}

int run_certs_node(const CertsQuestion& question, control::WallTime now, Output output) {
  const auto names = nodes_of(question);
  if (!names) return complain(names.error());
  if (const auto trouble = check_folder(question)) return complain(*trouble);
  const auto authority = authority_in(question);
  if (!authority) return complain(trouble_of(authority.error()));
  const auto cluster = control::cluster_of(authority->certificate);
  if (!cluster) return complain(trouble_of(cluster.error()));
  if (std::find(names->begin(), names->end(), kAuthority) != names->end())
    return complain({kUsage, fmt::format("a node cannot be called {}: its files would replace those of the "
                                         "authority",
                                         kAuthority)});
  Json nodes = Json::array();
  std::string text;
  for (const std::string& node : *names) {
    const auto made =
        control::certify_node(*authority, *cluster, node, now, life_of(question, control::kNodeLife));
    if (!made) return complain(trouble_of(made.error()));
    if (const Status written = write_pair(question, node, *made); !written.ok())
      return complain(trouble_of(written));
    const std::string certificate = path_of(question, node, ".pem");
    const std::string key = path_of(question, node, kKeySuffix);
    nodes.push_back({{"node", node}, {"certificate", certificate}, {"key", key}});
    text += fmt::format("{}, {}: node {} of cluster {}\n", certificate, key, node, *cluster);
  }
  if (output == Output::kJson) return print_json({{"cluster", *cluster}, {"nodes", std::move(nodes)}});
  return print_text(text);
}

int run_certs_check(const CertsQuestion& question, control::WallTime now, Output output) {
  const auto names = nodes_of(question);
  if (!names) return complain(names.error());
  if (const auto trouble = check_folder(question)) return complain(*trouble);
  const auto authority = text_of(path_of(question, kAuthority, ".pem"));
  if (!authority) return complain(trouble_of(authority.error()));
  if (const auto dates = dates_of("the certificate of the authority", *authority, now); !dates)
    return complain(trouble_of(dates.error()));
  std::vector<NodeFiles> nodes;
  for (const std::string& name : *names) {
    auto node = node_in(question, name, *authority, now);
    if (!node)
      return complain({trouble_of(node.error()).exit_code,
                       fmt::format("node {}: {}", name, node.error().message()), node.error().code()});
    nodes.push_back(*std::move(node));
  }
  Json rows = Json::array();
  std::string text;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const NodeFiles& next = nodes[(i + 1) % nodes.size()];
    if (const Status known = shake_hands(nodes[i], next, now); !known.ok())
      return complain(trouble_of(known));
    const auto days = std::chrono::floor<std::chrono::days>(nodes[i].good_until - now).count();
    rows.push_back({{"node", nodes[i].name}, {"days_left", days}});
    text += fmt::format("node {}: known to node {}; good for {} more days\n", nodes[i].name, next.name, days);
  }
  if (output == Output::kJson) return print_json({{"nodes", std::move(rows)}});
  return print_text(text);
}

}  // namespace muster::cli
