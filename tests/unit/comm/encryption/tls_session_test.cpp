// Encrypted connections, and whoever would rather that they were not.
#include "comm/encryption/tls_session.hpp"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/unit/comm/encryption/cable.hpp"

namespace sprat::comm {
namespace {

using Bytes = std::vector<std::byte>;

std::shared_ptr<const TlsContext> context(std::string_view token = "the token of this job",
                                          std::uint64_t records_a_key = 1u << 20) {
  return TlsContext::make(
      {.key = job_key(token, KeyUse::data), .read_ahead = 65536, .records_a_key = records_a_key});
}

Bytes random_bytes(std::size_t count) {
  Bytes bytes(count);
  std::uint32_t state = 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

Bytes bytes_of(std::string_view text) {
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

bool holds(const Bytes& bytes, const Bytes& run) {
  return std::search(bytes.begin(), bytes.end(), run.begin(), run.end()) != bytes.end();
}

/// Two sessions at the ends of a cable: 0 connects, 1 listens.
struct SessionPair {
  explicit SessionPair(const std::shared_ptr<const TlsContext>& connects = context(),
                       const std::shared_ptr<const TlsContext>& listens = context())
      : sessions{std::make_unique<TlsSession>(connects, TlsRole::connects, cable.end(0)),
                 std::make_unique<TlsSession>(listens, TlsRole::listens, cable.end(1))} {}
  TlsSession& operator[](std::size_t which) { return *sessions[which]; }
  /// Until both stand, or nothing moves any more. Whether both do.
  bool greet() {
    for (int idle = 0; idle < 3 && !(sessions[0]->stands() && sessions[1]->stands()); ++idle) {
      const std::size_t before = cable.said[0].size() + cable.said[1].size();
      for (const auto& session : sessions) {
        if (!session->stands()) {
          session->handshake();
        }
      }
      cable.move();
      idle = before == cable.said[0].size() + cable.said[1].size() ? idle : -1;
    }
    return sessions[0]->stands() && sessions[1]->stands();
  }
  /// What `to` gets of what the other end writes, until nothing moves any more.
  Bytes carry(std::size_t to, const Bytes& sent) {
    Bytes got, room(100'000);
    std::size_t written = 0;
    for (int idle = 0; idle < 3 && got.size() < sent.size(); ++idle) {
      const std::size_t before = cable.said[1 - to].size();
      while (written < sent.size()) {
        const TlsMoved moved = (*this)[1 - to].write(std::span(sent).subspan(written));
        written += moved.bytes;
        if (moved.state != TlsState::done) {
          break;
        }
      }
      cable.move();
      idle = before == cable.said[1 - to].size() ? idle : -1;
      for (last = (*this)[to].read(room); last.state == TlsState::done;
           last = (*this)[to].read(room)) {
        got.insert(got.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(last.bytes));
      }
    }
    return got;
  }

  Cable cable;
  std::array<std::unique_ptr<TlsSession>, 2> sessions;
  TlsMoved last;  ///< Of the last read.
};

TEST(TlsSession, carries_bytes_whatever_pieces_they_come_in) {
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, std::size_t{1460}, Cable::never}) {
    SessionPair pair;
    pair.cable.step = step;
    ASSERT_TRUE(pair.greet()) << step << " " << pair[0].why() << " " << pair[1].why();
    const Bytes sent = random_bytes(step == Cable::never ? 1'000'000 : 40'000);
    for (const std::size_t to : {1u, 0u}) {
      EXPECT_TRUE(pair.carry(to, sent) == sent) << step << " to " << to;
      EXPECT_EQ(pair.last.state, TlsState::wants_read);
    }
  }
}

TEST(TlsSession, shows_nothing_of_what_it_carries) {
  SessionPair pair;
  ASSERT_TRUE(pair.greet());
  const Bytes sent(100'000, std::byte{'s'});
  ASSERT_TRUE(pair.carry(1, sent) == sent);
  const Bytes run(16, std::byte{'s'});
  EXPECT_FALSE(holds(pair.cable.said[0], run));
  EXPECT_FALSE(holds(pair.cable.said[0], bytes_of("token")));
}

TEST(TlsSession, does_not_stand_with_another_key) {
  const auto other = context("the token of another");
  const auto same_token =
      TlsContext::make({.key = job_key("the token of this job", KeyUse::control)});
  for (const auto& wrong : {other, same_token}) {
    for (const bool connects : {true, false}) {
      SessionPair pair(connects ? wrong : context(), connects ? context() : wrong);
      EXPECT_FALSE(pair.greet());
      for (const std::size_t end : {0u, 1u}) {
        EXPECT_FALSE(pair[end].stands());
        EXPECT_EQ(pair[end].error(), EPROTO);
        EXPECT_FALSE(pair[end].peer_is_plain());
        EXPECT_NE(pair[end].why(), "");
      }
    }
  }
}

// Who connects says hello and, at last, that it is done; who listens says all that it says at once.
TEST(TlsSession, does_not_stand_if_its_peer_is_cut_off_anywhere) {
  SessionPair whole;
  ASSERT_TRUE(whole.greet());
  for (const std::size_t from : {0u, 1u}) {
    const std::size_t said = whole.cable.said[from].size();
    ASSERT_GT(said, 100u);
    for (std::size_t cut = 0; cut < said; ++cut) {
      SessionPair pair;
      pair.cable.cut[from] = cut;
      EXPECT_FALSE(pair.greet()) << cut;
      EXPECT_FALSE(pair[1 - from].stands()) << cut << " of " << said;
      EXPECT_EQ(pair[1 - from].handshake(), TlsState::ended) << cut << " of " << said;
      EXPECT_EQ(pair[1 - from].error(), ECONNRESET);
    }
  }
}

TEST(TlsSession, does_not_stand_by_what_was_recorded) {
  SessionPair recorded;
  ASSERT_TRUE(recorded.greet());
  const Bytes sent = random_bytes(1000);
  ASSERT_TRUE(recorded.carry(1, sent) == sent);
  ASSERT_TRUE(recorded.carry(0, sent) == sent);
  for (const std::size_t from : {0u, 1u}) {
    SessionPair pair;
    // Word by word as it was said: all of it is there whenever the end that is alive looks.
    pair.cable.say(from, recorded.cable.said[from]);
    for (int look = 0; look < 10; ++look) {
      EXPECT_NE(pair[1 - from].handshake(), TlsState::done);
    }
    EXPECT_EQ(pair[1 - from].handshake(), TlsState::failed);
    EXPECT_EQ(pair[1 - from].error(), EPROTO);
  }
}

// A byte of the length may make the record longer: then the rest of it never comes.
TEST(TlsSession, gives_nothing_of_a_record_that_was_altered) {
  const Bytes sent = random_bytes(40);
  for (std::size_t at = 0; at < 5 + 40 + 1 + 16; ++at) {
    SessionPair pair;
    ASSERT_TRUE(pair.greet());
    pair.cable.alter[0] = pair.cable.said[0].size() + at;
    EXPECT_TRUE(pair.carry(1, sent).empty()) << at;
    EXPECT_EQ(pair.last.state, at == 3 ? TlsState::wants_read : TlsState::failed) << at;
  }
}

TEST(TlsSession, knows_a_plain_peer) {
  for (const std::size_t from : {0u, 1u}) {
    SessionPair pair;
    pair.cable.say(from, bytes_of("SPRAT\r\n\x01 and sixteen bytes"));
    EXPECT_EQ(pair[1 - from].handshake(), TlsState::failed);
    EXPECT_TRUE(pair[1 - from].peer_is_plain());
    EXPECT_EQ(pair[1 - from].read({}).state, TlsState::failed);
    EXPECT_EQ(pair[1 - from].write({}).state, TlsState::failed);
  }
}

// --- peers that speak TLS, but not ours ---

struct Free {
  void operator()(SSL_CTX* one) const { SSL_CTX_free(one); }
  void operator()(SSL* one) const { SSL_free(one); }
  void operator()(X509* one) const { X509_free(one); }
  void operator()(EVP_PKEY* one) const { EVP_PKEY_free(one); }
};

/// As any server on the net has one, but that nobody signed it.
void certify(SSL_CTX* ssl) {
  const std::unique_ptr<EVP_PKEY, Free> key(EVP_EC_gen("P-256"));
  const std::unique_ptr<X509, Free> certificate(X509_new());
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("rank 0"), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get()));
  X509_set_pubkey(certificate.get(), key.get());
  ASSERT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  ASSERT_EQ(SSL_CTX_use_certificate(ssl, certificate.get()), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey(ssl, key.get()), 1);
}

/// Of TLS 1.2, with our key as its PSK, or of TLS 1.3 with a certificate or nothing.
bool stands_with_a_foreigner(int version, TlsRole ours) {
  Cable cable;
  TlsSession session(context(), ours, cable.end(ours == TlsRole::connects ? 0 : 1));
  const std::unique_ptr<SSL_CTX, Free> context(SSL_CTX_new(TLS_method()));
  SSL_CTX_set_min_proto_version(context.get(), version);
  SSL_CTX_set_max_proto_version(context.get(), version);
  if (version == TLS1_2_VERSION) {
    static constexpr auto tell = [](unsigned char* psk) {
      const TlsKey key = job_key("the token of this job", KeyUse::data);
      std::memcpy(psk, key.data(), key.size());
      return static_cast<unsigned>(key.size());
    };
    SSL_CTX_set_psk_client_callback(
        context.get(), [](SSL*, const char*, char* name, unsigned, unsigned char* psk, unsigned) {
          std::strcpy(name, "sprat");
          return tell(psk);
        });
    SSL_CTX_set_psk_server_callback(
        context.get(), [](SSL*, const char*, unsigned char* psk, unsigned) { return tell(psk); });
  }
  certify(context.get());
  const std::unique_ptr<SSL, Free> foreigner(SSL_new(context.get()));
  SSL_set_fd(foreigner.get(), cable.end(ours == TlsRole::connects ? 1 : 0));
  ours == TlsRole::connects ? SSL_set_accept_state(foreigner.get())
                            : SSL_set_connect_state(foreigner.get());
  for (int round = 0; round < 20; ++round) {
    SSL_do_handshake(foreigner.get());
    session.handshake();
    cable.move();
  }
  EXPECT_EQ(session.error(), EPROTO) << session.why();
  return session.stands();
}

TEST(TlsSession, does_not_stand_with_less_than_the_key) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    for (const TlsRole ours : {TlsRole::connects, TlsRole::listens}) {
      EXPECT_FALSE(stands_with_a_foreigner(version, ours)) << version << static_cast<int>(ours);
    }
  }
}

// Word of a new key is a record of its own: a header, a type, a length, an order, its own type and
// a tag.
TEST(TlsSession, changes_keys_and_goes_on) {
  constexpr std::size_t word_bytes = 5 + 1 + 3 + 1 + 1 + 16;
  constexpr std::size_t records = 50;
  std::array<std::size_t, 2> said{};
  for (const std::size_t changing : {0u, 1u}) {
    const auto both = context("the token of this job", changing == 1 ? 3 : 1000);
    SessionPair pair(both, both);
    ASSERT_TRUE(pair.greet());
    const std::size_t before = pair.cable.said[0].size();
    const Bytes sent = random_bytes(TlsSession::record_bytes);
    for (std::size_t record = 0; record < records; ++record) {
      EXPECT_TRUE(pair.carry(1, sent) == sent) << record;
      EXPECT_TRUE(pair.carry(0, sent) == sent) << record;
    }
    said[changing] = pair.cable.said[0].size() - before;
  }
  EXPECT_EQ(said[1] - said[0], (records - 1) / 3 * word_bytes);
}

// It may be writing that tells that the peer has gone.
TEST(TlsSession, gives_what_came_before_the_end) {
  SessionPair pair;
  ASSERT_TRUE(pair.greet());
  const Bytes sent = random_bytes(1000);
  ASSERT_EQ(pair[1].write(sent).bytes, sent.size());
  pair.cable.move();
  pair.cable.let_go(0);
  for (int twice = 0; twice < 2; ++twice) {
    EXPECT_EQ(pair[0].write(sent).state, TlsState::ended);
  }
  EXPECT_EQ(pair[0].error(), ECONNRESET);
  Bytes got(2000);
  const TlsMoved moved = pair[0].read(got);
  got.resize(moved.bytes);
  EXPECT_TRUE(got == sent) << moved.bytes;
  EXPECT_EQ(pair[0].read(got).state, TlsState::ended);
}

// While the peer does not read, what was begun waits; it goes on from memory that has moved.
TEST(TlsSession, sends_each_byte_once_however_often_it_waits) {
  SessionPair pair;
  ASSERT_TRUE(pair.greet());
  const Bytes sent = random_bytes(4'000'000);
  Bytes got, room(50'000);
  std::size_t written = 0, waits = 0;
  for (int round = 0; round < 10'000 && got.size() < sent.size(); ++round) {
    for (bool goes_on = written < sent.size(); goes_on;) {
      const Bytes moved_away(
          sent.begin() + static_cast<std::ptrdiff_t>(written),
          sent.begin() + static_cast<std::ptrdiff_t>(std::min(written + 20'000, sent.size())));
      const TlsMoved moved = pair[0].write(moved_away);
      written += moved.bytes;
      waits += moved.state == TlsState::wants_write ? 1 : 0;
      goes_on = moved.state == TlsState::done && written < sent.size();
    }
    pair.cable.move();
    const TlsMoved moved = pair[1].read(room);
    got.insert(got.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(moved.bytes));
  }
  EXPECT_TRUE(got == sent) << got.size();
  EXPECT_GT(waits, 5u);
}

}  // namespace
}  // namespace sprat::comm
