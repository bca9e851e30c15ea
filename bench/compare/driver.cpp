// The commands, and what every element must be.
#include "bench/compare/driver.hpp"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>

namespace compare {
namespace {

constexpr std::size_t huge_page = 2 << 20;

/// Small whole numbers: sums over 16 ranks are exact in any order.
float value(int rank, std::size_t index) {
  return static_cast<float>((static_cast<std::size_t>(rank) * 31 + index * 7 + index / 1000) % 251);
}

std::size_t rounded(std::size_t bytes) { return (bytes + huge_page - 1) / huge_page * huge_page; }

Collective collective_of(const std::string& name) {
  const char* names[] = {"all_reduce", "all_gather",  "reduce_scatter", "broadcast",
                         "all_to_all", "all_to_allv", "send_recv",      "barrier"};
  for (int i = 0; i < 8; ++i) {
    if (name == names[i]) {
      return static_cast<Collective>(i);
    }
  }
  throw std::runtime_error("no collective " + name);
}

class Server {
 public:
  explicit Server(Library& library) : library_(library) {}

  std::string cell(const std::string& collective, std::size_t bytes, const std::string& memory) {
    release();
    const auto ranks = static_cast<std::size_t>(library_.size);
    cell_ = {};
    memory_ = memory;
    cell_.collective = collective_of(collective);
    const std::size_t count = std::max<std::size_t>(1, bytes / sizeof(float));
    switch (cell_.collective) {
      case Collective::all_reduce:
      case Collective::broadcast:
      case Collective::send_recv:
        cell_.block = cell_.in = cell_.out = count;
        break;
      case Collective::all_gather:
        cell_.block = cell_.in = std::max<std::size_t>(1, count / ranks);
        cell_.out = cell_.in * ranks;
        break;
      case Collective::reduce_scatter:
        cell_.block = cell_.out = std::max<std::size_t>(1, count / ranks);
        cell_.in = cell_.out * ranks;
        break;
      case Collective::all_to_all:
      case Collective::all_to_allv:
        cell_.block = std::max<std::size_t>(1, count / ranks);
        cell_.in = cell_.out = cell_.block * ranks;
        break;
      case Collective::barrier:
        break;
    }
    if (cell_.in > 0) {
      cell_.input = library_.allocate(cell_.in * sizeof(float), memory);
      cell_.output = cell_.collective == Collective::broadcast
                         ? cell_.input
                         : library_.allocate(cell_.out * sizeof(float), memory);
      if (cell_.input == nullptr || cell_.output == nullptr) {
        return "no such memory";
      }
    }
    library_.prepare(cell_);
    return check();
  }

  /// Every rank meets the others as often, whatever it finds.
  std::string check() {
    std::string complaint = "ok";
    for (int root = 0; root < (cell_.collective == Collective::broadcast ? library_.size : 1);
         ++root) {
      const bool keeps = cell_.collective != Collective::broadcast || library_.rank == root;
      std::fill_n(cell_.output, cell_.out, -1.0f);
      for (std::size_t i = 0; i < cell_.in; ++i) {
        cell_.input[i] = keeps ? value(library_.rank, i) : -1.0f;
      }
      library_.barrier();
      library_.call(cell_, root);
      library_.barrier();
      for (std::size_t i = 0; i < cell_.out && complaint == "ok"; ++i) {
        if (cell_.output[i] != expected(i, root)) {
          complaint = "wrong: element " + std::to_string(i) + " is " +
                      std::to_string(cell_.output[i]) + " instead of " +
                      std::to_string(expected(i, root));
        }
      }
      library_.barrier();
    }
    return complaint;
  }

  double batch(int calls) {
    using Clock = std::chrono::steady_clock;
    library_.barrier();
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) {
      library_.call(cell_, i % library_.size);
    }
    return std::chrono::duration<double>(Clock::now() - begin).count() / calls;
  }

  void release() {
    if (cell_.output != cell_.input) {
      library_.release(cell_.output, cell_.out * sizeof(float), memory_);
    }
    if (cell_.input != nullptr) {
      library_.release(cell_.input, cell_.in * sizeof(float), memory_);
    }
    cell_ = {};
  }

 private:
  float expected(std::size_t index, int root) const {
    const int me = library_.rank;
    const std::size_t block = cell_.block;
    const auto sum = [&](std::size_t at) {
      float total = 0;
      for (int rank = 0; rank < library_.size; ++rank) {
        total += value(rank, at);
      }
      return total;
    };
    switch (cell_.collective) {
      case Collective::all_reduce:
        return sum(index);
      case Collective::reduce_scatter:
        return sum(static_cast<std::size_t>(me) * block + index);
      case Collective::all_gather:
        return value(static_cast<int>(index / block), index % block);
      case Collective::send_recv:
        return value(library_.previous(), index);
      case Collective::all_to_all:
      case Collective::all_to_allv:
        return value(static_cast<int>(index / block),
                     static_cast<std::size_t>(me) * block + index % block);
      case Collective::broadcast:
        return value(root, index);
      case Collective::barrier:
        break;
    }
    return 0;
  }

  Library& library_;
  Cell cell_;
  std::string memory_;
};

int connect_to_controller(const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path == nullptr || std::strlen(path) >= sizeof address.sun_path) {
    throw std::runtime_error("no socket: compare.py starts this program");
  }
  std::strcpy(address.sun_path, path);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    throw std::runtime_error(std::string("cannot connect to ") + path);
  }
  return fd;
}

}  // namespace

float* Library::allocate(std::size_t bytes, const std::string& kind) {
  if (kind != "malloc" && kind != "huge") {
    return nullptr;
  }
  void* memory = std::aligned_alloc(huge_page, rounded(bytes));
  if (kind == "huge" && memory != nullptr) {
    madvise(memory, rounded(bytes), MADV_HUGEPAGE);
  }
  if (memory != nullptr && kind == "malloc") {
    madvise(memory, rounded(bytes), MADV_NOHUGEPAGE);
  }
  return static_cast<float*>(memory);
}

void Library::release(float* memory, std::size_t, const std::string&) { std::free(memory); }

int serve(Library& library, const char* socket) {
  const int fd = connect_to_controller(socket);
  FILE* stream = fdopen(fd, "r+");
  const auto say = [&](const std::string& words) {
    const std::string line = words + "\n";
    if (write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      std::abort();
    }
  };
  say(library.name + " " + std::to_string(library.rank) + " " + std::to_string(getpid()));
  Server server(library);
  char line[256];
  while (std::fgets(line, sizeof line, stream) != nullptr) {
    std::istringstream words(line);
    std::string command, collective, memory;
    std::size_t number = 0;
    words >> command;
    if (command == "cell" && words >> collective >> number >> memory) {
      say(server.cell(collective, number, memory));
    } else if (command == "batch" && words >> number) {
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%.9g", server.batch(static_cast<int>(number)));
      say(seconds);
    } else if (command == "check") {
      say(server.check());
    } else if (command == "quit") {
      break;
    }
  }
  server.release();
  return 0;
}

}  // namespace compare
