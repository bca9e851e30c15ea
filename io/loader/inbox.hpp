// What other threads tell the one that fetches.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "io/loader/assembly.hpp"

namespace sprat::io {

struct CorruptSample {
  SampleRef sample;
  std::string what;  ///< Is wrong with it.
};

/// Any thread, several at once. Lives as long as somebody may tell something, so longer than the
/// loader where a program keeps a batch.
class Inbox final {
 public:
  struct Letters {
    std::vector<std::shared_ptr<BatchBuild>> let_go;
    std::vector<CorruptSample> corrupt;
    /// Whose rows are not all in the page cache.
    std::vector<std::shared_ptr<BatchBuild>> missing;
    bool begin = false, stop = false;
  };

  /// Called after each letter; empty once nobody reads any more.
  void set_wake(std::function<void()> wake) {
    const std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }
  void let_go(std::shared_ptr<BatchBuild> build) {
    tell([&](Letters& letters) { letters.let_go.push_back(std::move(build)); });
  }
  void corrupt(CorruptSample sample) {
    tell([&](Letters& letters) { letters.corrupt.push_back(std::move(sample)); });
  }
  void missing(std::shared_ptr<BatchBuild> build) {
    tell([&](Letters& letters) { letters.missing.push_back(std::move(build)); });
  }
  /// A batch is asked for.
  void begin() {
    tell([](Letters& letters) { letters.begin = true; });
  }
  void stop() {
    tell([](Letters& letters) { letters.stop = true; });
  }
  /// The batches that wait have changed: there may be room to read further ahead.
  void poke() {
    tell([](Letters&) {});
  }
  Letters take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(letters_, {});
  }

 private:
  template <class Write>
  void tell(Write&& write) {
    const std::lock_guard lock(mutex_);
    if (wake_) {
      write(letters_);
      wake_();
    }
  }

  std::mutex mutex_;  // guards what follows
  Letters letters_;
  std::function<void()> wake_;
};

}  // namespace sprat::io
