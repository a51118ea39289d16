// OpenSSL's objects, freed with their owner.
#pragma once

#include "api/base/result.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace muster::control::openssl {

template<auto kFree>
struct Freed {
  template<class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using OwnedBio = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using OwnedKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using OwnedCertificate = std::unique_ptr<X509, Freed<X509_free>>;

// Takes the oldest error off OpenSSL's queue, and empties it.
std::string take_reason();
// kInternal: what was tried, and OpenSSL's reason.
inline Status failed_to(std::string_view what) {
  return failure(Code::kInternal, "OpenSSL: {}: {}", what, take_reason());
}

OwnedBio reader_of(std::string_view text);
std::string text_in(BIO* bio);
// The URIs that the certificate names as its subject.
std::vector<std::string> uris_of(const X509* certificate);
// From when to when it is good. Nothing: a date is not well-formed.
std::optional<std::pair<std::chrono::sys_seconds, std::chrono::sys_seconds>> dates_of(
    const X509* certificate);

}  // namespace muster::control::openssl
