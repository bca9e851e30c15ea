// Ranks of one process for tests: how they join, what they hear, how they leave.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/coordinator/control_socket.hpp"
#include "comm/coordinator/rendezvous.hpp"
#include "sprat/error.hpp"

namespace sprat::comm {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Kind = ControlMessage::Kind;
using Ranks = std::vector<std::unique_ptr<Rendezvous>>;

inline Blob blob(std::string_view text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

inline Clock::time_point soon() { return Clock::now() + 20s; }

/// What a rank hears, to be waited for.
class Ear {
 public:
  explicit Ear(Rendezvous& rank) {
    rank.listen([this](const ControlMessage& message) {
      std::lock_guard lock(mutex_);
      heard_.push_back(message);
      changed_.notify_all();
    });
  }
  ControlMessage next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, 20s, [this] { return !heard_.empty(); })) {
      ADD_FAILURE() << "nothing was heard";
      return {};
    }
    ControlMessage message = std::move(heard_.front());
    heard_.pop_front();
    return message;
  }
  bool silent() {
    std::lock_guard lock(mutex_);
    return heard_.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ControlMessage> heard_;
};

/// Runs `body` for each rank, each on a thread of its own.
inline void on_each(Ranks& ranks, const std::function<void(Rendezvous&)>& body) {
  std::vector<std::thread> threads;
  for (auto& rank : ranks) {
    if (rank) {
      threads.emplace_back([&] { body(*rank); });
    }
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

/// Ends every rank, together, as the ranks of a job do.
inline void leave(Ranks& ranks) {
  std::vector<std::thread> threads;
  for (auto& rank : ranks) {
    threads.emplace_back([&] { rank.reset(); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

/// What each rank's thread came to: a rank, or its error.
struct Joined {
  std::unique_ptr<Rendezvous> rank;
  std::optional<Error> error;
};

/// Joins with each configuration, all at once.
inline std::vector<Joined> join_all(const std::vector<Config>& configs) {
  std::vector<Joined> joined(configs.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        joined[i].rank = open_rendezvous(configs[i]);
      } catch (const Error& error) {
        joined[i].error = error;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return joined;
}

inline void leave(std::vector<Joined>& joined) {
  Ranks ranks;
  for (Joined& one : joined) {
    ranks.push_back(std::move(one.rank));
  }
  leave(ranks);
}

/// A folder of our own, gone at the end.
class Folder {
 public:
  Folder() {
    std::string path = (std::filesystem::temp_directory_path() / "sprat-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) {
      throw std::runtime_error("no temporary folder");
    }
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::filesystem::path path_;
};

inline std::vector<Config> configs_at(const std::string& rendezvous, int size) {
  std::vector<Config> configs(size);
  for (int rank = 0; rank < size; ++rank) {
    configs[rank].rank = rank;
    configs[rank].size = size;
    configs[rank].rendezvous = rendezvous;
    configs[rank].join_timeout = 20s;
  }
  return configs;
}

inline Ranks open_at(const std::string& rendezvous, int size) {
  Ranks ranks;
  for (Joined& one : join_all(configs_at(rendezvous, size))) {
    if (one.error) {
      ADD_FAILURE() << one.error->what();
    }
    ranks.push_back(std::move(one.rank));
  }
  return ranks;
}

/// A port that nobody has now.
inline int free_port() {
  boost::asio::io_context io;
  return listen_on(io, 0)->port;
}

}  // namespace sprat::comm
