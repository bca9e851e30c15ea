// Threads that take samples apart, and do with each what the program wants done.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "io/cores/core_budget.hpp"
#include "io/loader/assembly.hpp"

namespace sprat::io {

struct DecoderOptions {
  int threads = 1;
  std::shared_ptr<CoreBudget> cores = nullptr;  ///< Says how many of them may decode; null: all.
  std::vector<DecodeStage> stages;
  /// Fills the sample's fields from its bytes. Throws what is wrong with them.
  std::function<void(LoadedSample&)> take_apart;
  /// Reads the bytes anew from storage, for a sample whose bytes were wrong. Throws if it cannot.
  /// Empty: samples are not read again.
  std::function<void(LoadedSample&)> read_again;
  std::function<void(const SampleRef&)> done;
  /// The bytes are wrong on storage, too, or a stage has thrown.
  std::function<void(const SampleRef&, std::string what)> corrupt;
  /// The bytes were wrong, and could not be read again: the file has changed, or is gone.
  std::function<void(const SampleRef&, std::exception_ptr error)> lost;
};

/// push() and the counts: any thread. The functions are called on the decoder's threads, several at
/// once.
class Decoder final {
 public:
  explicit Decoder(DecoderOptions options);
  ~Decoder();  ///< Waits for what is under way, and forgets the rest.
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  void push(const std::vector<SampleRef>& samples);
  /// Of all threads together, by stage; the first is taking apart.
  std::vector<std::chrono::nanoseconds> busy() const;
  int threads() const noexcept { return options_.threads; }

 private:
  void stop();
  void run();
  std::optional<SampleRef> take(CoreBudget::Member* member);
  void decode(const SampleRef& sample);
  void run_stages(LoadedSample& sample);
  void take_apart(LoadedSample& sample);
  void take_apart_anew(LoadedSample& sample);
  bool read_again_for_stages(LoadedSample& sample);

  DecoderOptions options_;
  std::vector<std::atomic<std::int64_t>> busy_ns_;  // relaxed: sums for people
  std::mutex mutex_;                                // guards what follows
  std::condition_variable pushed_, paused_;
  std::deque<SampleRef> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sprat::io
