// A wait policy under which nobody wakes by time: a thread that is not woken is found out.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <span>

#include "comm/context/wait_policy.hpp"

namespace sprat::comm {

/// The machine's, without spinning. Sleeps last until they are ended, or for some 20 s, except
/// short ones: who sleeps for less than a millisecond is about to look again by itself.
class PatientWaitPolicy final : public WaitPolicy {
 public:
  Clock::time_point now() noexcept override { return real_->now(); }
  Clock::time_point recent() noexcept override { return real_->recent(); }
  bool rest(int, Awaited) noexcept override { return false; }
  void yield() noexcept override { real_->yield(); }
  void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected,
             std::chrono::nanoseconds timeout) noexcept override {
    if (timeout < std::chrono::milliseconds(1)) {
      return real_->sleep(word, expected, timeout);
    }
    ++sleeping;
    for (int round = 0; round < rounds && word == expected; ++round) {
      real_->sleep(word, expected, longest);
    }
    overslept += word == expected ? 1 : 0;
    --sleeping;
  }
  void poll(std::span<pollfd> descriptors, std::chrono::nanoseconds) noexcept override {
    ++polling;
    bool ended = false;
    for (int round = 0; round < rounds && !ended; ++round) {
      real_->poll(descriptors, longest);
      for (const pollfd& one : descriptors) {
        ended |= one.revents != 0;
      }
    }
    overslept += ended ? 0 : 1;
    --polling;
  }
  void wake(std::atomic<std::uint32_t>& word, int owner) noexcept override {
    real_->wake(word, owner);
  }
  void lock(std::mutex& mutex) noexcept override { mutex.lock(); }
  void point() noexcept override {}

  std::atomic<int> sleeping = 0, polling = 0;  ///< Threads that do.
  std::atomic<int> overslept = 0;              ///< Sleeps that nobody ended.

 private:
  static constexpr int rounds = 20;
  static constexpr std::chrono::milliseconds longest{999};
  std::unique_ptr<WaitPolicy> real_ = real_wait_policy();
};

}  // namespace sprat::comm
