// Whether a rank that is silent can still be reached: a cut between two hosts may spare the
// coordinator's.
#pragma once

#include <functional>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/bootstrap/bootstrap_place.hpp"

namespace sprat::comm {

/// Looks in the background, for some seconds, one search at a time. Any thread.
class ReachabilityCheck {
 public:
  struct Target {
    int rank;
    std::vector<SocketAddress> addresses;  ///< Where its process listens as long as it lives.
  };
  ~ReachabilityCheck() { stop(); }
  /// Calls `unreachable` for each target that nobody answers for, until `over` is true. Does
  /// nothing while another search is under way. One that lacks a thread or memory is not made, with
  /// a word in the log.
  void start(std::vector<Target> targets, std::function<bool()> over,
             std::function<void(int rank)> unreachable);
  /// Until the search is done. No more are started.
  void stop();

 private:
  void search(const std::vector<Target>& targets, const std::function<bool()>& over,
              const std::function<void(int rank)>& unreachable);
  void note(std::string_view failure);

  std::mutex mutex_;  ///< Guards what is below.
  bool searching_ = false;
  bool noted_ = false;  ///< It has been said that a search failed.
  std::thread thread_;
};

}  // namespace sprat::comm
