// A stranger, or one that knows the token, at the coordinator's port: whatever it sends, the
// coordinator lives and nobody joins.
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/address_v4.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "comm/coordinator/control_greeting.hpp"
#include "comm/coordinator/control_loop.hpp"
#include "comm/coordinator/control_server.hpp"
#include "comm/encryption/token_proof.hpp"
#include "tests/system/fuzz/targets.hpp"

namespace sprat::fuzz {
namespace {

using namespace comm;
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr const char* token = "a secret";

/// A coordinator of a job of one rank, so that there is no seat for anybody else. Lives as long as
/// the program.
struct House {
  ControlLoop loop;
  int port = 0;
  std::shared_ptr<ControlServer> server;

  House() {
    Listening listening = *listen_on(loop.io(), 0);
    port = listening.port;
    const Hello own{0, 1, {{"version", "1"}}};
    server = ControlServer::start(loop, std::move(listening), {token, Trust::proof}, own);
    auto [mine, coordinators] = socket_pair(loop.io());
    loop.run([&, &coordinators = coordinators] { server->adopt(std::move(coordinators), own); });
    static StreamSocket kept = std::move(mine);
  }
};

/// Proves the token as a rank does. False if the coordinator does not answer so.
bool prove_token(tcp::socket& socket) {
  error_code failed;
  Greeting greeting;
  CoordinatorGreeting answer;
  asio::write(socket, std::array{asio::buffer(greeting.magic), asio::buffer(greeting.nonce)},
              failed);
  const std::array<asio::mutable_buffer, 3> in = {
      asio::buffer(answer.magic), asio::buffer(answer.nonce), asio::buffer(answer.proof)};
  if (!failed) {
    asio::read(socket, in, failed);
  }
  if (failed) {
    return false;
  }
  expect(equal(answer.proof, prove(token, Side::coordinator, answer.nonce, greeting.nonce)),
         "the hub proves itself");
  asio::write(socket, asio::buffer(prove(token, Side::rank, answer.nonce, greeting.nonce)), failed);
  return !failed;
}

}  // namespace

/// The first byte: odd proves the token first.
bool run_handshake(std::span<const std::byte> input) {
  static House& house = *new House;
  if (input.empty()) {
    return false;
  }
  asio::io_context io;
  tcp::socket socket(io);
  error_code failed;
  socket.connect({asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(house.port)},
                 failed);
  expect(!failed, "the hub listens");
  socket.set_option(asio::socket_base::linger(true, 0), failed);  // leave no port in TIME_WAIT
  const bool proves = (std::to_integer<int>(input[0]) & 1) != 0;
  if (proves) {
    expect(prove_token(socket), "the hub takes a proof");
  }
  failed = {};
  asio::write(socket, asio::buffer(input.data() + 1, input.size() - 1), failed);
  if (!failed) {
    socket.shutdown(tcp::socket::shutdown_send, failed);
  }
  std::array<std::byte, 4096> answer;
  std::size_t bytes = 0;
  for (error_code ended; !ended;) {
    bytes += socket.read_some(asio::buffer(answer), ended);
  }
  constexpr std::size_t greeting_bytes = magic_bytes + nonce_bytes + proof_bytes;
  expect(proves || bytes <= greeting_bytes, "a stranger hears a greeting only");
  // Of who has proved the token a hello is answered, and nothing else.
  return bytes >= (proves ? 1 : greeting_bytes);
}

}  // namespace sprat::fuzz
