#include "daemon/control/link/certificate.hpp"

#include "daemon/control/link/openssl.hpp"

#include <array>
#include <initializer_list>
#include <memory>
#include <vector>

#include <time.h>

#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

namespace muster::control {
namespace openssl {

std::string take_reason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "no reason is given";
  if (const char* reason = ERR_reason_error_string(code)) return reason;
  std::array<char, 256> text{};
  ERR_error_string_n(code, text.data(), text.size());
  return text.data();
}

OwnedBio reader_of(std::string_view text) {
  return OwnedBio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string text_in(BIO* bio) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio, &data);
  return bytes > 0 ? std::string(data, static_cast<std::size_t>(bytes)) : std::string();
}

std::vector<std::string> uris_of(const X509* certificate) {
  std::vector<std::string> uris;
  const std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES_free>> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      static_cast<std::size_t>(ASN1_STRING_length(uri)));
  }
  return uris;
}

std::optional<std::pair<WallTime, WallTime>> dates_of(const X509* certificate) {
  std::tm from{};
  std::tm until{};
  if (ASN1_TIME_to_tm(X509_get0_notBefore(certificate), &from) != 1 ||
      ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &until) != 1)
    return std::nullopt;
  return std::pair(WallTime(std::chrono::seconds(timegm(&from))),
                   WallTime(std::chrono::seconds(timegm(&until))));
}

}  // namespace openssl

namespace {

using openssl::OwnedBio;
using openssl::OwnedCertificate;
using openssl::OwnedKey;

constexpr std::string_view kScheme = "spiffe://";
constexpr std::string_view kNodePath = "/node/";
constexpr std::size_t kNameBytesMax = 253;
constexpr int kSerialBits = 127;
constexpr std::chrono::hours kClockSkew{1};  // between nodes

Status check_name(std::string_view what, std::string_view name) {
  const bool good =
      !name.empty() && name.size() <= kNameBytesMax &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") ==
          std::string_view::npos;
  if (good) return {};
  return failure(Code::kBadArgument, "{} '{}' must be 1 to {} letters, digits, '.', '-' or '_'", what,
                 name.substr(0, kNameBytesMax), kNameBytesMax);
}

Status set_time(ASN1_TIME* field, WallTime at) {
  if (ASN1_TIME_set(field, static_cast<time_t>(at.time_since_epoch().count())) == nullptr)
    return openssl::failed_to("setting a date");
  return {};
}

Status add_extensions(X509* certificate, X509* issuer,
                      std::initializer_list<std::pair<int, std::string>> extensions) {
  for (const auto& [id, value] : extensions) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
    const std::unique_ptr<X509_EXTENSION, openssl::Freed<X509_EXTENSION_free>> extension(
        X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str()));
    if (extension == nullptr || X509_add_ext(certificate, extension.get(), -1) != 1)
      return openssl::failed_to("adding an extension to a certificate");
  }
  return {};
}

// Serial number, dates, subject and key.
Result<OwnedCertificate> begin_certificate(const std::string& subject, EVP_PKEY* key, WallTime now,
                                           std::chrono::seconds life) {
  OwnedCertificate certificate(X509_new());
  const std::unique_ptr<BIGNUM, openssl::Freed<BN_free>> serial(BN_new());
  if (certificate == nullptr || serial == nullptr ||
      BN_rand(serial.get(), kSerialBits, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) != 1 ||
      BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate.get())) == nullptr ||
      X509_set_version(certificate.get(), X509_VERSION_3) != 1 ||
      X509_set_pubkey(certificate.get(), key) != 1 ||
      X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(subject.data()),
                                 static_cast<int>(subject.size()), -1, 0) != 1)
    return fail(openssl::failed_to("beginning a certificate"));
  MUSTER_RETURN_IF_ERROR(set_time(X509_getm_notBefore(certificate.get()), now - kClockSkew));
  MUSTER_RETURN_IF_ERROR(set_time(X509_getm_notAfter(certificate.get()), now + life));
  return certificate;
}

Result<CertifiedKey> sign(X509* certificate, EVP_PKEY* key, EVP_PKEY* signer) {
  if (X509_sign(certificate, signer, EVP_sha256()) == 0)
    return fail(openssl::failed_to("signing a certificate"));
  const OwnedBio certificate_text(BIO_new(BIO_s_mem()));
  const OwnedBio key_text(BIO_new(BIO_s_mem()));
  if (certificate_text == nullptr || key_text == nullptr ||
      PEM_write_bio_X509(certificate_text.get(), certificate) != 1 ||
      PEM_write_bio_PKCS8PrivateKey(key_text.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return fail(openssl::failed_to("writing a certificate"));
  return CertifiedKey{openssl::text_in(certificate_text.get()), openssl::text_in(key_text.get())};
}

// A common name has 64 characters at most; nothing reads it.
std::string short_name(std::string_view name) {
  constexpr std::size_t kCommonNameMax = 64;
  return std::string(name.substr(0, kCommonNameMax));
}

}  // namespace

WallTime wall_time() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return WallTime(std::chrono::seconds(now.tv_sec));
}

Result<std::string> node_uri(std::string_view cluster, std::string_view node) {
  MUSTER_RETURN_IF_ERROR(check_name("the cluster's name", cluster));
  MUSTER_RETURN_IF_ERROR(check_name("the node's name", node));
  return fmt::format("{}{}{}{}", kScheme, cluster, kNodePath, node);
}

Result<std::string> node_of_uri(std::string_view uri, std::string_view cluster) {
  const std::string begin = fmt::format("{}{}{}", kScheme, cluster, kNodePath);
  if (!uri.starts_with(begin))
    return fail(Code::kDenied, "its certificate names {}, and a node of this cluster is {}NODE",
                uri.substr(0, 2 * kNameBytesMax), begin);
  const std::string node(uri.substr(begin.size()));
  if (const Status named = check_name("the node's name", node); !named.ok())
    return fail(Code::kDenied, "its certificate is not one of a node: {}", named.message());
  return node;
}

Result<CertifiedKey> make_authority(std::string_view cluster, WallTime now, std::chrono::seconds life) {
  MUSTER_RETURN_IF_ERROR(check_name("the cluster's name", cluster));
  const OwnedKey key(EVP_EC_gen("P-256"));
  if (key == nullptr) return fail(openssl::failed_to("making a key"));
  MUSTER_ASSIGN_OR_RETURN(
      const OwnedCertificate certificate,
      begin_certificate(short_name(fmt::format("{} authority", cluster)), key.get(), now, life));
  if (X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get())) != 1)
    return fail(openssl::failed_to("naming an issuer"));
  MUSTER_RETURN_IF_ERROR(add_extensions(certificate.get(), certificate.get(),
                                        {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                         {NID_key_usage, "critical,keyCertSign,cRLSign"},
                                         {NID_subject_key_identifier, "hash"},
                                         {NID_subject_alt_name, fmt::format("URI:{}{}", kScheme, cluster)}}));
  return sign(certificate.get(), key.get(), key.get());
}

Result<std::string> cluster_of(std::string_view authority) {
  const OwnedBio text = openssl::reader_of(authority);
  const OwnedCertificate certificate(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr)
    return fail(Code::kBadArgument, "the authority's certificate is not PEM: {}", openssl::take_reason());
  for (const std::string& uri : openssl::uris_of(certificate.get()))
    if (uri.starts_with(kScheme) && uri.find('/', kScheme.size()) == std::string::npos)
      return uri.substr(kScheme.size());
  return fail(Code::kBadArgument, "the authority's certificate does not name a cluster ({}CLUSTER)", kScheme);
}

Result<Validity> validity_of(std::string_view certificate) {
  const OwnedBio text = openssl::reader_of(certificate);
  const OwnedCertificate read(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr));
  const auto dates = read == nullptr ? std::nullopt : openssl::dates_of(read.get());
  if (!dates) return fail(Code::kBadArgument, "the certificate is not PEM: {}", openssl::take_reason());
  return Validity{dates->first, dates->second};
}

Result<CertifiedKey> certify_node(const CertifiedKey& authority, std::string_view cluster,
                                  std::string_view node, WallTime now, std::chrono::seconds life) {
  MUSTER_ASSIGN_OR_RETURN(const std::string uri, node_uri(cluster, node));
  const OwnedBio certificate_text = openssl::reader_of(authority.certificate);
  const OwnedBio key_text = openssl::reader_of(authority.key);
  const OwnedCertificate issuer(PEM_read_bio_X509(certificate_text.get(), nullptr, nullptr, nullptr));
  const OwnedKey signer(PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, nullptr));
  if (issuer == nullptr || signer == nullptr)
    return fail(Code::kBadArgument, "the authority's {} is not PEM: {}",
                issuer == nullptr ? "certificate" : "key", openssl::take_reason());
  if (X509_check_private_key(issuer.get(), signer.get()) != 1)
    return fail(Code::kBadArgument, "the authority's key does not belong to its certificate: {}",
                openssl::take_reason());
  const OwnedKey key(EVP_EC_gen("P-256"));
  if (key == nullptr) return fail(openssl::failed_to("making a key"));
  MUSTER_ASSIGN_OR_RETURN(const OwnedCertificate certificate,
                          begin_certificate(short_name(node), key.get(), now, life));
  if (X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer.get())) != 1)
    return fail(openssl::failed_to("naming an issuer"));
  MUSTER_RETURN_IF_ERROR(add_extensions(certificate.get(), issuer.get(),
                                        {{NID_basic_constraints, "critical,CA:FALSE"},
                                         {NID_key_usage, "critical,digitalSignature"},
                                         {NID_ext_key_usage, "serverAuth,clientAuth"},
                                         {NID_subject_alt_name, "URI:" + uri},
                                         {NID_authority_key_identifier, "keyid"}}));
  return sign(certificate.get(), key.get(), signer.get());
}

}  // namespace muster::control
