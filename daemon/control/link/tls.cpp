#include "daemon/control/link/tls.hpp"

#include "daemon/control/link/clocks.hpp"
#include "daemon/control/link/openssl.hpp"

#include <array>
#include <cstring>
#include <utility>

#include <openssl/err.h>
#include <openssl/pem.h>

namespace muster::control {
namespace {

using openssl::OwnedBio;
using openssl::OwnedCertificate;
using openssl::OwnedKey;

constexpr int kChainLengthMax = 4;
constexpr char kSuites[] = "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
// The one of a connection by secret: its hash belongs to the secret.
constexpr char kSecretSuite[] = "TLS_AES_128_GCM_SHA256";
constexpr std::array<unsigned char, 2> kSecretSuiteId{0x13, 0x01};

std::vector<OwnedCertificate> certificates_in(std::string_view text) {
  std::vector<OwnedCertificate> all;
  const OwnedBio bio = openssl::reader_of(text);
  while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) all.emplace_back(one);
  ERR_clear_error();  // the end of the text is reported as one
  return all;
}

// With one name only, so that no check can look at another than this one.
Result<std::string> node_of(const X509* certificate, std::string_view cluster) {
  const std::vector<std::string> uris = openssl::uris_of(certificate);
  if (uris.size() != 1)
    return fail(Code::kDenied, "its certificate names {} URIs, and a node has one", uris.size());
  return node_of_uri(uris.front(), cluster);
}

// Why the other side refuses this node's certificate, by its alert; null: the error is another.
const char* refusal_in(unsigned long error) {
  if (ERR_GET_LIB(error) != ERR_LIB_SSL) return nullptr;
  const int alert = ERR_GET_REASON(error) - SSL_AD_REASON_OFFSET;
  switch (alert) {
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_EXPIRED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_ACCESS_DENIED:
      return SSL_alert_desc_string_long(alert);
    default:
      return nullptr;
  }
}

}  // namespace

// The findings of a handshake's checks, and their inputs. The callbacks of OpenSSL get them from the
// connection.
struct PeerCheck {
  WallTime now;
  std::string said;     // by secret: the client's name for itself; else what is wrong with the peer's name
  std::string outside;  // which certificate lies outside its dates, and by how much; empty: none does
};

struct Credentials::Parts {
  std::unique_ptr<SSL_CTX, openssl::Freed<SSL_CTX_free>> context;
  std::string cluster;
  std::string node;
  std::vector<unsigned char> secret;  // empty: certificates

  ~Parts() {
    if (!secret.empty()) OPENSSL_cleanse(secret.data(), secret.size());
  }

  static Result<std::unique_ptr<Parts>> begin(std::string_view cluster) {
    auto parts = std::make_unique<Parts>();
    parts->cluster = cluster;
    parts->context.reset(SSL_CTX_new(TLS_method()));
    SSL_CTX* context = parts->context.get();
    if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context, kSuites) != 1 || SSL_CTX_set_num_tickets(context, 0) != 1)
      return fail(openssl::failed_to("preparing TLS 1.3"));
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return parts;
  }

  // A session that both ends make of the secret.
  SSL_SESSION* session(SSL* ssl) const {
    const SSL_CIPHER* suite = SSL_CIPHER_find(ssl, kSecretSuiteId.data());
    SSL_SESSION* made = SSL_SESSION_new();
    if (made != nullptr && suite != nullptr &&
        SSL_SESSION_set1_master_key(made, secret.data(), secret.size()) == 1 &&
        SSL_SESSION_set_cipher(made, suite) == 1 &&
        SSL_SESSION_set_protocol_version(made, TLS1_3_VERSION) == 1)
      return made;
    SSL_SESSION_free(made);
    return nullptr;
  }
  static Parts& of(SSL* ssl) { return *static_cast<Parts*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl))); }

  // The name is checked during the handshake: so an alert tells the other side. Dates are only noted: an
  // alert would tell neither by how much nor by which clock, and so the handshake goes on and proves the
  // rest.
  static int verify(int is_good, X509_STORE_CTX* store) {
    auto* ssl = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
    const X509* certificate = X509_STORE_CTX_get_current_cert(store);
    const Parts& own = of(ssl);
    PeerCheck& found = *static_cast<PeerCheck*>(SSL_get_app_data(ssl));
    const bool is_node = X509_STORE_CTX_get_error_depth(store) == 0;
    const int error = X509_STORE_CTX_get_error(store);
    if (is_good != 1 && (error == X509_V_ERR_CERT_NOT_YET_VALID || error == X509_V_ERR_CERT_HAS_EXPIRED)) {
      const auto dates = openssl::dates_of(certificate);
      if (!dates) return 0;
      const auto name = node_of(certificate, own.cluster);
      const std::string whose = !is_node ? "the certificate of the authority"
                                : name   ? "the certificate of node " + *name
                                         : "its certificate";
      const std::string outside =
          outside_dates(whose, {dates->first, dates->second}, found.now, "the clock of node " + own.node);
      if (outside.empty()) return 0;
      if (found.outside.empty()) found.outside = outside;
      X509_STORE_CTX_set_error(store, X509_V_OK);
      return 1;
    }
    if (is_good != 1 || !is_node) return is_good;
    const auto node = node_of(certificate, own.cluster);
    if (node) return 1;
    found.said = node.error().message();
    X509_STORE_CTX_set_error(store, X509_V_ERR_HOSTNAME_MISMATCH);
    return 0;
  }
};

// ---- credentials -------------------------------------------------------------------------------

Credentials::Credentials(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Credentials::Credentials(Credentials&&) noexcept = default;
Credentials& Credentials::operator=(Credentials&&) noexcept = default;
Credentials::~Credentials() = default;

Result<Credentials> Credentials::of_certificates(std::string_view cluster, std::string_view authorities,
                                                 const CertifiedKey& own) {
  MUSTER_ASSIGN_OR_RETURN(auto parts, Parts::begin(cluster));
  SSL_CTX* context = parts->context.get();
  const std::vector<OwnedCertificate> believed = certificates_in(authorities);
  if (believed.empty()) return fail(Code::kBadArgument, "the authorities' text has no PEM certificate");
  for (const OwnedCertificate& authority : believed)
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) != 1)
      return fail(openssl::failed_to("believing an authority"));
  std::vector<OwnedCertificate> chain = certificates_in(own.certificate);
  if (chain.empty()) return fail(Code::kBadArgument, "the node's certificate is not PEM");
  const OwnedBio key_text = openssl::reader_of(own.key);
  const OwnedKey key(PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, nullptr));
  if (key == nullptr)
    return fail(Code::kBadArgument, "the node's key is not PEM: {}", openssl::take_reason());
  if (SSL_CTX_use_certificate(context, chain.front().get()) != 1)
    return fail(Code::kBadArgument, "the node's certificate cannot be used: {}", openssl::take_reason());
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1)
    return fail(Code::kBadArgument, "the node's key does not belong to its certificate: {}",
                openssl::take_reason());
  for (std::size_t i = 1; i < chain.size(); ++i)
    if (SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1)
      return fail(openssl::failed_to("adding to the node's chain"));
  MUSTER_ASSIGN_OR_RETURN(parts->node, node_of(chain.front().get(), cluster));
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, Parts::verify);
  SSL_CTX_set_verify_depth(context, kChainLengthMax);
  SSL_CTX_set_app_data(context, parts.get());
  return Credentials(std::move(parts));
}

Result<Credentials> Credentials::of_secret(std::string_view cluster, std::string_view node,
                                           std::string_view secret) {
  if (secret.size() < kSecretBytesMin)
    return fail(Code::kBadArgument,
                "the secret has {} bytes; it needs {}: make one with `openssl rand -hex 32`", secret.size(),
                kSecretBytesMin);
  if (const auto uri = node_uri(cluster, node); !uri) return fail(uri.error());
  MUSTER_ASSIGN_OR_RETURN(auto parts, Parts::begin(cluster));
  parts->node = node;
  SSL_CTX* context = parts->context.get();
  // A secret of any length makes a key of the suite's hash.
  parts->secret.resize(SHA256_DIGEST_LENGTH);
  unsigned int bytes = 0;
  if (EVP_Digest(secret.data(), secret.size(), parts->secret.data(), &bytes, EVP_sha256(), nullptr) != 1 ||
      SSL_CTX_set_ciphersuites(context, kSecretSuite) != 1)
    return fail(openssl::failed_to("preparing a connection by secret"));
  SSL_CTX_set_app_data(context, parts.get());
  SSL_CTX_set_psk_use_session_callback(context, [](SSL* ssl, const EVP_MD*, const unsigned char** id,
                                                   std::size_t* id_bytes, SSL_SESSION** session) {
    const Parts& own = Parts::of(ssl);
    *id = reinterpret_cast<const unsigned char*>(own.node.data());
    *id_bytes = own.node.size();
    *session = own.session(ssl);
    return *session != nullptr ? 1 : 0;
  });
  SSL_CTX_set_psk_find_session_callback(
      context, [](SSL* ssl, const unsigned char* id, std::size_t id_bytes, SSL_SESSION** session) {
        const std::string said(reinterpret_cast<const char*>(id), id_bytes);
        *session = nullptr;
        if (!node_uri(Parts::of(ssl).cluster, said)) return 1;  // no such session
        *session = Parts::of(ssl).session(ssl);
        if (auto* found = static_cast<PeerCheck*>(SSL_get_app_data(ssl))) found->said = said;
        return *session != nullptr ? 1 : 0;
      });
  return Credentials(std::move(parts));
}

// ---- streams -----------------------------------------------------------------------------------

struct TlsStream::Parts {
  const Credentials::Parts* own = nullptr;
  std::unique_ptr<SSL, openssl::Freed<SSL_free>> ssl;
  BIO* in = nullptr;  // both belong to `ssl`
  BIO* out = nullptr;
  Role role = Role::kClient;
  std::string wanted;
  std::string peer;
  PeerCheck found;
  Status broken;
  bool finished = false;  // the handshake
  bool closed = false;
};

TlsStream::TlsStream(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
TlsStream::TlsStream(TlsStream&&) noexcept = default;
TlsStream& TlsStream::operator=(TlsStream&&) noexcept = default;
TlsStream::~TlsStream() = default;

Result<TlsStream> TlsStream::begin(const Credentials& credentials, Role role, std::string_view peer,
                                   WallTime now) {
  auto parts = std::make_unique<Parts>();
  parts->own = credentials.parts_.get();
  parts->role = role;
  parts->wanted = peer;
  parts->ssl.reset(SSL_new(credentials.parts_->context.get()));
  parts->in = BIO_new(BIO_s_mem());
  parts->out = BIO_new(BIO_s_mem());
  if (parts->ssl == nullptr || parts->in == nullptr || parts->out == nullptr) {
    BIO_free(parts->in);
    BIO_free(parts->out);
    return fail(openssl::failed_to("beginning a connection"));
  }
  SSL* ssl = parts->ssl.get();
  SSL_set_bio(ssl, parts->in, parts->out);
  parts->found.now = now;
  SSL_set_app_data(ssl, &parts->found);
  X509_VERIFY_PARAM_set_time(SSL_get0_param(ssl), static_cast<time_t>(now.time_since_epoch().count()));
  if (role == Role::kClient)
    SSL_set_connect_state(ssl);
  else
    SSL_set_accept_state(ssl);
  TlsStream stream(std::move(parts));
  if (role == Role::kClient) MUSTER_RETURN_IF_ERROR(stream.handshake());
  return stream;
}

// Why the connection cannot go on. The verification error of the peer's certificate says more than an alert.
Status TlsStream::refusal(int result) {
  SSL* ssl = parts_->ssl.get();
  const int error = SSL_get_error(ssl, result);
  if (error == SSL_ERROR_ZERO_RETURN) {
    parts_->closed = true;
    return failure(Code::kProtocol, "the other side has closed the connection");
  }
  const long verified = SSL_get_verify_result(ssl);
  const char* const refused = refusal_in(ERR_peek_error());
  const std::string reason = openssl::take_reason();
  if (verified == X509_V_ERR_HOSTNAME_MISMATCH) return failure(Code::kDenied, "{}", parts_->found.said);
  if (verified != X509_V_OK)
    return failure(Code::kDenied, "its certificate is refused: {}", X509_verify_cert_error_string(verified));
  // A client has ended its part of the handshake before the server looks at its certificate.
  if (refused != nullptr)
    return failure(Code::kDenied, "it refuses the certificate of node {}: {}", parts_->own->node, refused);
  if (parts_->finished) return failure(Code::kProtocol, "TLS: {}", reason);
  if (!parts_->own->secret.empty())
    return failure(Code::kDenied, "the two nodes do not have the same secret: {}", reason);
  return failure(Code::kDenied, "TLS: {}", reason);
}

Status TlsStream::handshake() {
  SSL* ssl = parts_->ssl.get();
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl);
  if (result != 1) {
    const int error = SSL_get_error(ssl, result);
    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? Status() : refusal(result);
  }
  if (parts_->own->secret.empty()) {
    const OwnedCertificate certificate(SSL_get1_peer_certificate(ssl));
    if (certificate == nullptr) return failure(Code::kDenied, "it has shown no certificate");
    MUSTER_ASSIGN_OR_RETURN(parts_->peer, node_of(certificate.get(), parts_->own->cluster));
  } else {
    if (SSL_session_reused(ssl) != 1) return failure(Code::kDenied, "it does not know the cluster's secret");
    // A server does not send its name: the client takes it for the wanted one.
    parts_->peer = parts_->role == Role::kServer ? parts_->found.said : parts_->wanted;
  }
  if (!parts_->wanted.empty() && parts_->peer != parts_->wanted)
    return failure(Code::kDenied, "it is node {}, and node {} was expected", parts_->peer, parts_->wanted);
  parts_->finished = true;
  return {};
}

Result<std::vector<std::byte>> TlsStream::receive(std::span<const std::byte> wire) {
  if (!parts_->broken.ok()) return fail(parts_->broken);
  std::vector<std::byte> plain;
  const auto ends = [&](Status why) {
    parts_->broken = std::move(why);
    return fail(parts_->broken);
  };
  if (!wire.empty() &&
      BIO_write(parts_->in, wire.data(), static_cast<int>(wire.size())) != static_cast<int>(wire.size()))
    return ends(openssl::failed_to("taking bytes"));
  if (!parts_->finished)
    if (Status status = handshake(); !status.ok()) return ends(std::move(status));
  if (!parts_->finished) return plain;
  std::array<std::byte, 16 << 10> piece;
  while (true) {
    ERR_clear_error();
    const int bytes = SSL_read(parts_->ssl.get(), piece.data(), static_cast<int>(piece.size()));
    if (bytes > 0) {
      plain.insert(plain.end(), piece.begin(), piece.begin() + bytes);
      continue;
    }
    const int error = SSL_get_error(parts_->ssl.get(), bytes);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return plain;
    if (error == SSL_ERROR_ZERO_RETURN) {
      parts_->closed = true;
      return plain;
    }
    return ends(refusal(bytes));
  }
}

std::vector<std::byte> TlsStream::take_wire() {
  std::vector<std::byte> wire(BIO_ctrl_pending(parts_->out));
  if (!wire.empty()) {
    const int bytes = BIO_read(parts_->out, wire.data(), static_cast<int>(wire.size()));
    wire.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  }
  return wire;
}

// A memory BIO takes everything, so a write is never partial.
Status TlsStream::write(std::span<const std::byte> plain) {
  if (!parts_->broken.ok()) return parts_->broken;
  if (!parts_->finished) return failure(Code::kState, "the handshake is not over");
  while (!plain.empty()) {
    ERR_clear_error();
    std::size_t written = 0;
    if (SSL_write_ex(parts_->ssl.get(), plain.data(), plain.size(), &written) != 1) {
      parts_->broken = openssl::failed_to("writing");
      return parts_->broken;
    }
    plain = plain.subspan(written);
  }
  return {};
}

void TlsStream::close() {
  if (parts_->finished && parts_->broken.ok()) SSL_shutdown(parts_->ssl.get());
  ERR_clear_error();
}

Result<std::array<std::byte, 32>> TlsStream::exported(std::string_view label) const {
  if (!established())
    return fail(Code::kState, "the handshake is not over, or a certificate outside its dates");
  std::array<std::byte, 32> key;
  if (SSL_export_keying_material(parts_->ssl.get(), reinterpret_cast<unsigned char*>(key.data()), key.size(),
                                 label.data(), label.size(), nullptr, 0, 0) != 1)
    return fail(openssl::failed_to("drawing a key from a connection"));
  return key;
}

bool TlsStream::established() const {
  return parts_->finished && parts_->broken.ok() && parts_->found.outside.empty();
}

Status TlsStream::outside_dates() const {
  if (!parts_->finished || parts_->found.outside.empty()) return {};
  return failure(Code::kDenied, "{}", parts_->found.outside);
}

const std::string& TlsStream::peer() const {
  return parts_->peer;
}

bool TlsStream::closed() const {
  return parts_->closed;
}

}  // namespace muster::control
