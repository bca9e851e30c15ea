// What the wires carry: every host sends to the next and receives from the one before, all at once,
// over plain TCP, one connection for each rail.
//   compare_wire SOCKET HOST HOSTS PORT MINE,... NEXT,...
// MINE and NEXT are this host's and the next one's addresses, one for each rail. It answers as
// driver.hpp says; its cell is "wire BYTES", what a call sends.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr std::size_t piece_bytes = 1 << 20;  // of a call of send() or recv()

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::exit(1);
}

std::vector<std::string> listed(const char* text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) {
    words.push_back(word);
  }
  return words;
}

sockaddr_in address_of(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    give_up(host.c_str());
  }
  return address;
}

int listen_at(const std::string& host, int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const sockaddr_in address = address_of(host, port);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(fd, 1) != 0) {
    give_up("listen");
  }
  return fd;
}

int connect_to(const std::string& host, int port) {
  const sockaddr_in address = address_of(host, port);
  for (int attempt = 0; attempt < 1'000; ++attempt) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      return fd;
    }
    close(fd);
    usleep(10'000);  // it does not listen yet
  }
  give_up("connect");
}

/// One rail's connections. What is left to be moved of the call under way.
struct Rail {
  int next = -1, previous = -1;
  std::size_t to_send = 0, to_receive = 0;
};

class Ring {
 public:
  Ring(const std::vector<std::string>& mine, const std::vector<std::string>& next, int port)
      : rails_(mine.size()), buffer_(piece_bytes) {
    std::vector<int> listeners;
    for (const std::string& one : mine) {
      listeners.push_back(listen_at(one, port));
    }
    for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
      const int yes = 1;
      rails_[rail].next = connect_to(next[rail], port);
      rails_[rail].previous = accept(listeners[rail], nullptr, nullptr);
      setsockopt(rails_[rail].next, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      close(listeners[rail]);
    }
  }

  /// Sends as much as it receives, an equal share over each rail.
  void move(std::size_t bytes) {
    std::vector<pollfd> waits;
    for (Rail& rail : rails_) {
      rail.to_send = rail.to_receive = (bytes + rails_.size() - 1) / rails_.size();
      waits.push_back({rail.next, 0, 0});
      waits.push_back({rail.previous, 0, 0});
    }
    for (bool open = true; open;) {
      open = false;
      for (std::size_t i = 0; i < rails_.size(); ++i) {
        advance(rails_[i]);
        waits[2 * i].events = rails_[i].to_send > 0 ? POLLOUT : 0;
        waits[2 * i + 1].events = rails_[i].to_receive > 0 ? POLLIN : 0;
        open |= rails_[i].to_send > 0 || rails_[i].to_receive > 0;
      }
      if (open && poll(waits.data(), waits.size(), -1) < 0) {
        give_up("poll");
      }
    }
  }

 private:
  void advance(Rail& rail) {
    if (rail.to_send > 0) {
      rail.to_send -= moved(send(rail.next, buffer_.data(), std::min(rail.to_send, piece_bytes),
                                 MSG_DONTWAIT | MSG_NOSIGNAL));
    }
    if (rail.to_receive > 0) {
      rail.to_receive -= moved(recv(rail.previous, buffer_.data(),
                                    std::min(rail.to_receive, piece_bytes), MSG_DONTWAIT));
    }
  }

  static std::size_t moved(ssize_t bytes) {
    if (bytes > 0) {
      return static_cast<std::size_t>(bytes);
    }
    if (bytes == 0 || (errno != EAGAIN && errno != EINTR)) {
      give_up("the ring");
    }
    return 0;
  }

  std::vector<Rail> rails_;
  std::vector<char> buffer_;
};

int connect_to_controller(const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    give_up(path);
  }
  return fd;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) {
    return 2;
  }
  using Clock = std::chrono::steady_clock;
  const int hosts = std::atoi(argv[3]);
  Ring ring(listed(argv[5]), listed(argv[6]), std::atoi(argv[4]));
  const int fd = connect_to_controller(argv[1]);
  FILE* commands = fdopen(fd, "r");
  dprintf(fd, "wire %s %d\n", argv[2], getpid());
  std::size_t bytes = 0;
  char line[256];
  while (std::fgets(line, sizeof line, commands) != nullptr) {
    std::istringstream words(line);
    std::string command, kind;
    std::size_t calls = 0;
    words >> command;
    if (command == "cell" && words >> kind >> bytes) {
      dprintf(fd, "ok\n");
    } else if (command == "batch" && words >> calls) {
      // Who has passed a byte round the ring knows that all are here.
      for (int hop = 0; hop < hosts; ++hop) {
        ring.move(1);
      }
      const auto begin = Clock::now();
      for (std::size_t call = 0; call < calls; ++call) {
        ring.move(bytes);
      }
      const std::chrono::duration<double> spent = Clock::now() - begin;
      dprintf(fd, "%.9g\n", spent.count() / static_cast<double>(calls));
    } else if (command == "check") {
      dprintf(fd, "ok\n");
    } else if (command == "quit") {
      break;
    }
  }
}
