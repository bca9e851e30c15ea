#include "comm/bootstrap/coordinator_search.hpp"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/coordinator/control_greeting.hpp"
#include "comm/coordinator/objection.hpp"

namespace sprat::comm {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// The pause between rounds of probing, doubled each time, so that many waiting ranks do not flood
/// a rank 0 that comes late.
constexpr auto first_pause = 10ms, longest_pause = 500ms;
/// How long an address may take to answer, doubled each round: a coordinator with many ranks is
/// slow, and a foreign process that listens there never answers.
constexpr auto first_patience = 500ms, longest_patience = 8000ms;

/// What came of an address: the connection, or why there is none.
using Outcome = std::variant<Entrance, std::string>;

bool is_newcomer(const Hello& hello) {
  return hello.rank == unnumbered && hello.size == unnumbered;
}

/// What the coordinator says is held against what was asked: it may number newcomers, and nobody
/// else.
bool answers(const Welcome& welcome, const Hello& hello) {
  const bool sound = welcome.rank >= 0 && welcome.rank < welcome.size;
  return sound &&
         (is_newcomer(hello) || (welcome.rank == hello.rank && welcome.size == hello.size));
}

/// One try at one address, step by step, each within its deadline.
class ConnectionAttempt final {
 public:
  explicit ConnectionAttempt(const tcp::endpoint& endpoint)
      : endpoint_(endpoint), line_(open_socket(io_, endpoint.protocol())) {}

  /// Whether the coordinator of our job is here.
  std::optional<std::string> greet(std::string_view token, Trust trust, Encryption encryption,
                                   Clock::time_point deadline) {
    if (const auto failed = run(deadline, [&](auto done) {
          line_.socket().async_connect(endpoint_,
                                       [done](const error_code& error) { done(error, 0); });
        })) {
      return failed->message();
    }
    if (encryption == Encryption::on) {
      if (auto why_not = encrypt(token, deadline)) {
        return why_not;
      }
    }
    return prove_to(token, trust, deadline);
  }

  /// Asks the coordinator to be let in: Welcome or Refusal; null if it closes the connection
  /// instead.
  std::optional<Frame> enter(const Hello& hello, Clock::time_point deadline) {
    if (write(asio::buffer(encode(hello)), deadline)) {
      return std::nullopt;
    }
    std::array<std::byte, frame_header_bytes> header;
    if (read(asio::buffer(header), deadline)) {
      return std::nullopt;
    }
    // The coordinator has proved the token, but its answer is still bounded: a Refusal's text may
    // be as long as a Hello, and a little is added to it.
    if (frame_bytes(header) > max_hello_bytes + (max_hello_bytes >> 1)) {
      return std::nullopt;
    }
    Blob body(frame_bytes(header));
    if (read(asio::buffer(body), deadline)) {
      return std::nullopt;
    }
    return decode(body);
  }

  ControlLine release(asio::io_context& io) {
    return line_.moved_to(io, endpoint_.protocol().family());
  }

 private:
  /// From here on only who knows the token can read or alter what is said.
  std::optional<std::string> encrypt(std::string_view token, Clock::time_point deadline) {
    line_.encrypt(TlsContext::make({.key = job_key(token, KeyUse::control)}), TlsRole::connects);
    const auto failed = run(deadline, [&](auto done) {
      line_.async_handshake([done](const error_code& error) { done(error, 0); });
    });
    if (!failed) {
      return std::nullopt;
    }
    const TlsSession& session = *line_.session();
    if (*failed == asio::error::timed_out) {
      return "connected, but no hub answers";
    }
    if (session.error() == EPROTO && !session.peer_is_plain()) {
      return text("a hub of another job, or with another token, answers (", session.why(), ")");
    }
    return "connected, but what answers does not encrypt; set SPRAT_ENCRYPT=1 on every rank";
  }

  std::optional<std::string> prove_to(std::string_view token, Trust trust,
                                      Clock::time_point deadline) {
    Greeting greeting;
    greeting.nonce = random_nonce();
    CoordinatorGreeting answer;
    const std::array<asio::const_buffer, 2> out = {asio::buffer(greeting.magic),
                                                   asio::buffer(greeting.nonce)};
    const std::array<asio::mutable_buffer, 3> in = {
        asio::buffer(answer.magic), asio::buffer(answer.nonce), asio::buffer(answer.proof)};
    answer.magic = {};
    // The coordinator proves itself first. Whoever poses as it learns nothing but a random number.
    if (write(out, deadline) || read(in, deadline)) {
      return "connected, but no hub answers";
    }
    if (answer.magic == encrypted_only_magic) {
      return "a hub answers that wants encryption; set SPRAT_ENCRYPT=1 on every rank";
    }
    if (answer.magic != control_magic) {
      return "connected, but what answers is not a hub";
    }
    if (!equal(answer.proof, prove(token, Side::coordinator, answer.nonce, greeting.nonce))) {
      return "a hub of another job, or with another token, answers";
    }
    if (const Objection objection = object_to(trust, line_.socket()); !objection.text.empty()) {
      const std::string what = text("a hub answers, but ", objection.text);
      if (objection.elsewhere) {
        throw Error(ErrorCode::unavailable, what, 0);
      }
      return what;
    }
    const Proof proof = prove(token, Side::rank, answer.nonce, greeting.nonce);
    if (write(asio::buffer(proof), deadline)) {
      return "the hub closed the connection";
    }
    return std::nullopt;
  }

  template <class Buffers>
  std::optional<error_code> write(const Buffers& buffers, Clock::time_point deadline) {
    return run(deadline, [&](auto done) { asio::async_write(line_, buffers, done); });
  }
  template <class Buffers>
  std::optional<error_code> read(const Buffers& buffers, Clock::time_point deadline) {
    return run(deadline, [&](auto done) { asio::async_read(line_, buffers, done); });
  }

  /// Starts one asynchronous operation and sees it through. Null if it went well.
  template <class Start>
  std::optional<error_code> run(Clock::time_point deadline, Start start) {
    std::optional<error_code> result;
    start([&result](const error_code& error, std::size_t) { result = error; });
    io_.restart();
    io_.run_until(deadline);
    if (!result) {
      // The handler refers to this function's variables: closing the socket ends the operation, and
      // the second run() lets the handler be called before these are gone.
      error_code ignored;
      line_.socket().close(ignored);
      io_.restart();
      io_.run();
      result = asio::error::timed_out;
    }
    return *result ? result : std::nullopt;
  }

  tcp::endpoint endpoint_;
  asio::io_context io_{1};
  ControlLine line_;
};

/// Tries one address. Throws the coordinator's refusal.
Outcome probe(asio::io_context& io, const tcp::endpoint& endpoint, std::string_view token,
              Trust trust, Encryption encryption, const Hello& hello, Clock::time_point answer_by,
              Clock::time_point deadline) {
  ConnectionAttempt attempt(endpoint);
  if (auto why_not = attempt.greet(token, trust, encryption, answer_by)) {
    return std::move(*why_not);
  }
  // It is our job's coordinator, so from here on only the deadline for joining counts: it may be
  // busy with other ranks.
  std::optional<Frame> answer = attempt.enter(hello, deadline);
  if (!answer) {
    return "the hub closed the connection";
  }
  if (const auto* refusal = std::get_if<Refusal>(&*answer)) {
    // The place that a newcomer waits for may open later, here or where the next look finds it.
    if (is_newcomer(hello) && static_cast<ErrorCode>(refusal->code) == ErrorCode::unavailable) {
      return refusal->text;
    }
    throw Error(static_cast<ErrorCode>(refusal->code), refusal->text, refusal->rank);
  }
  const auto* welcome = std::get_if<Welcome>(&*answer);
  if (welcome == nullptr || !answers(*welcome, hello)) {
    return "the hub did not let this rank in";
  }
  return Entrance{attempt.release(io), *welcome};
}

class Search final {
 public:
  Search(asio::io_context& io, BootstrapPlace& place, const Hello& hello,
         Clock::time_point deadline, Encryption encryption)
      : io_(io), place_(place), hello_(hello), deadline_(deadline), encryption_(encryption) {}

  Entrance run() {
    auto pause = std::chrono::milliseconds(first_pause);
    auto patience = std::chrono::milliseconds(first_patience);
    for (;;) {
      if (auto entrance = round(patience)) {
        return std::move(*entrance);
      }
      if (Clock::now() + pause >= deadline_) {
        throw not_found();
      }
      asio::io_context clock;
      asio::steady_timer(clock, pause).wait();
      pause = std::min(2 * pause, std::chrono::milliseconds(longest_pause));
      patience = std::min(2 * patience, std::chrono::milliseconds(longest_patience));
    }
  }

 private:
  std::optional<Entrance> round(std::chrono::milliseconds patience) {
    // The error tells what the last round met; earlier ones met a rank 0 that had not come yet.
    notes_.clear();
    hosts_.clear();
    auto [contact, why_not] = place_.look_up(deadline_);
    if (!contact) {
      notes_ = why_not;
      return std::nullopt;
    }
    for (const SocketAddress& address : contact->addresses) {
      for (tcp::endpoint endpoint : endpoints_of(address.host)) {
        endpoint.port(static_cast<std::uint16_t>(address.port));
        const auto answer_by = std::min(Clock::now() + patience, deadline_);
        Outcome outcome = probe_safely(endpoint, contact->token, answer_by);
        if (auto* entrance = std::get_if<Entrance>(&outcome)) {
          return std::move(*entrance);
        }
        note(endpoint_text(endpoint), std::get<std::string>(outcome));
      }
      // Else every further host that is asked for could prolong it.
      if (Clock::now() >= deadline_) {
        break;
      }
    }
    return std::nullopt;
  }

  /// Without their ports. Each host is asked for once a round, however many of its ports there are:
  /// where no name server answers that takes ten seconds or more, and cannot be cut short.
  const std::vector<tcp::endpoint>& endpoints_of(const std::string& host) {
    const auto [place, is_new] = hosts_.try_emplace(host);
    if (is_new) {
      error_code unknown;
      for (const auto& entry :
           tcp::resolver(io_).resolve(host, "0", tcp::resolver::numeric_service, unknown)) {
        place->second.push_back(entry.endpoint());
      }
      if (unknown) {
        note(host, unknown.message());
      }
    }
    return place->second;
  }

  /// An address of a family that this host lacks (IPv6, say) counts as one that does not answer.
  /// But a process that has no descriptor left will not get one by waiting, so that is an error at
  /// once.
  Outcome probe_safely(const tcp::endpoint& endpoint, std::string_view token,
                       Clock::time_point answer_by) {
    try {
      return probe(io_, endpoint, token, place_.trust(), encryption_, hello_, answer_by, deadline_);
    } catch (const boost::system::system_error& error) {
      need(!is_exhaustion(error.code()), who(),
           " cannot look for the hub: ", error.code().message(), " (see ulimit -n)");
      return error.code().message();
    }
  }

  void note(std::string_view where, std::string_view what) {
    constexpr std::size_t enough = 2000;
    if (notes_.size() < enough) {
      notes_ += text("\n  ", where, ": ", what);
    }
  }

  Error not_found() const {
    const BootstrapPlace::Server server = place_.server();
    return Error(
        ErrorCode::timeout,
        text(who(), " found no hub by ", place_.name(), " in time. ", server.advice, " ", notes_),
        server.rank);
  }

  std::string who() const {
    return is_newcomer(hello_) ? "a newcomer" : text("rank ", hello_.rank, " of ", hello_.size);
  }

  asio::io_context& io_;
  BootstrapPlace& place_;
  const Hello& hello_;
  const Clock::time_point deadline_;
  const Encryption encryption_;
  std::string notes_;                                        ///< What the last round met.
  std::map<std::string, std::vector<tcp::endpoint>> hosts_;  ///< Of this round, by name.
};

}  // namespace

Entrance find_coordinator(asio::io_context& io, BootstrapPlace& place, const Hello& hello,
                          Clock::time_point deadline, Encryption encryption) {
  return Search(io, place, hello, deadline, encryption).run();
}

}  // namespace sprat::comm
