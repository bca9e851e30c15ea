// Sockets of the control channel, and what of them is left when they have ended.
#include "comm/coordinator/control_socket.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace sprat::comm {
namespace {

using boost::asio::ip::tcp;

/// What all epolls of this process watch, as /proc tells of it.
int watched() {
  int watched = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry, gone) != "anon_inode:[eventpoll]") {
      continue;
    }
    std::ifstream info("/proc/self/fdinfo" / entry.path().filename());
    for (std::string line; std::getline(info, line);) {
      watched += line.starts_with("tfd:") ? 1 : 0;
    }
  }
  return watched;
}

/// A copy of a descriptor, as a child has it for a while that was not made by fork().
class Copy {
 public:
  explicit Copy(int descriptor) : number_(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)) {}
  Copy(Copy&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Copy& operator=(Copy&&) = delete;
  ~Copy() { ::close(number_); }

 private:
  int number_;
};

// The kernel forgets a descriptor that is closed only with its last copy. Until then epoll would
// tell of it, and asio would take that for news of the socket that has its place in memory by then.
TEST(ControlSocket, is_watched_no_more_once_it_has_ended_though_a_child_holds_it) {
  boost::asio::io_context io;
  Listening listening = *listen_on(io, 0);
  const int before = watched();
  std::vector<StreamSocket> sockets;
  auto [one, other] = socket_pair(io);
  sockets.push_back(std::move(one));
  sockets.push_back(std::move(other));
  sockets.push_back(open_socket(io, tcp::v4()));
  sockets.back().connect(tcp::endpoint(boost::asio::ip::address_v4::loopback(),
                                       static_cast<std::uint16_t>(listening.port)));
  sockets.push_back(std::move(*accept_one(io, listening.acceptor).socket));
  EXPECT_EQ(watched(), before + 4);
  std::vector<Copy> held;
  held.emplace_back(listening.acceptor.native_handle());
  for (StreamSocket& socket : sockets) {
    held.emplace_back(socket.native_handle());
  }
  sockets[0].close();
  EXPECT_EQ(watched(), before + 3) << "closed";
  ::close(sockets[1].release());
  EXPECT_EQ(watched(), before + 2) << "released";
  sockets.clear();
  EXPECT_EQ(watched(), before) << "destroyed";
  listening.acceptor.close();
  EXPECT_EQ(watched(), before - 1) << "the acceptor";
}

}  // namespace
}  // namespace sprat::comm
