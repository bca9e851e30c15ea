// Samples are taken in the order in which they became complete: batches end nearly in their order.
#include "io/loader/decoder.hpp"

#include <algorithm>
#include <utility>

#include "comm/base/thread.hpp"

namespace sprat::io {
namespace {

/// How long a thread that may not decode sleeps before it asks again.
constexpr std::chrono::milliseconds look_again{20};

/// Why a sample could not be read again.
struct LostSample {
  std::exception_ptr error;
};

/// Adds the time it lives to a sum.
class BusyTime {
 public:
  explicit BusyTime(std::atomic<std::int64_t>& sum) : sum_(sum) {}
  ~BusyTime() {
    const auto took = std::chrono::steady_clock::now() - begin_;
    sum_.fetch_add(std::chrono::nanoseconds(took).count(), std::memory_order_relaxed);
  }
  BusyTime(const BusyTime&) = delete;
  BusyTime& operator=(const BusyTime&) = delete;

 private:
  std::atomic<std::int64_t>& sum_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

Decoder::Decoder(DecoderOptions options)
    : options_(std::move(options)), busy_ns_(options_.stages.size() + 1) {
  try {
    for (int i = 0; i < options_.threads; ++i) {
      threads_.push_back(start_thread("decoding of samples", [this] { run(); }));
    }
  } catch (...) {
    stop();
    throw;
  }
}

Decoder::~Decoder() { stop(); }

void Decoder::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    queue_.clear();  // nobody waits for these batches any more
  }
  pushed_.notify_all();
  paused_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void Decoder::push(const std::vector<SampleRef>& samples) {
  if (samples.empty()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    queue_.insert(queue_.end(), samples.begin(), samples.end());
  }
  // One sample wants one thread; waking all for it would only make them meet at the lock.
  samples.size() == 1 ? pushed_.notify_one() : pushed_.notify_all();
}

std::vector<std::chrono::nanoseconds> Decoder::busy() const {
  std::vector<std::chrono::nanoseconds> busy;
  for (const std::atomic<std::int64_t>& one : busy_ns_) {
    busy.emplace_back(one.load(std::memory_order_relaxed));
  }
  return busy;
}

void Decoder::run() {
  std::optional<CoreBudget::Member> member;
  if (options_.cores != nullptr) {
    member.emplace(*options_.cores, CoreBudget::Role::decodes);
  }
  while (const std::optional<SampleRef> sample = take(member ? &*member : nullptr)) {
    std::optional<CoreBudget::Decoding> decoding;
    if (member) {
      decoding.emplace(*options_.cores);
    }
    decode(*sample);
  }
}

/// The next sample, once there is one and this thread may decode; nothing to stop.
std::optional<SampleRef> Decoder::take(CoreBudget::Member* member) {
  std::unique_lock lock(mutex_);
  while (true) {
    // Who may not decode waits elsewhere, so that it takes no call that is meant for one who may.
    const bool may = member == nullptr || member->may_decode();
    if (!may) {
      paused_.wait_for(lock, look_again, [this] { return stopping_; });
    } else {
      pushed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    }
    if (stopping_) {
      return std::nullopt;
    }
    if (may && !queue_.empty()) {
      SampleRef sample = std::move(queue_.front());
      queue_.pop_front();
      return sample;
    }
  }
}

void Decoder::decode(const SampleRef& ref) {
  LoadedSample& sample = ref.build->batch->samples[ref.sample];
  try {
    take_apart(sample);
    try {
      run_stages(sample);
    } catch (...) {
      if (!read_again_for_stages(sample)) {
        throw;
      }
      run_stages(sample);
    }
  } catch (const LostSample& sample_lost) {
    options_.lost(ref, sample_lost.error);
    return;
  } catch (const std::exception& error) {
    // Only the thread that fetches may plan a replacement; it hears of the sample by this call. Of
    // what was thrown it gets the words: the rest ends on the thread that threw it.
    options_.corrupt(ref, error.what());
    return;
  } catch (...) {
    options_.corrupt(ref, "what a stage threw is no std::exception");
    return;
  }
  options_.done(ref);
}

void Decoder::run_stages(LoadedSample& sample) {
  DecodedRecord::Impl record{.fields = sample.fields, .sample = sample.number};
  for (std::size_t i = 0; i < options_.stages.size(); ++i) {
    const BusyTime timed(busy_ns_[i + 1]);
    DecodedRecord decoded(record);
    options_.stages[i].run(decoded);
  }
}

void Decoder::take_apart(LoadedSample& sample) {
  try {
    const BusyTime timed(busy_ns_[0]);
    options_.take_apart(sample);
  } catch (const std::exception&) {
    if (!options_.read_again) {
      throw;
    }
    take_apart_anew(sample);
  }
}

/// A format without checksums cannot tell what the page cache made of its bytes, so what a stage
/// finds counts as well. False if they cannot be read: then what the stage has said stands.
bool Decoder::read_again_for_stages(LoadedSample& sample) {
  if (!options_.read_again) {
    return false;
  }
  try {
    take_apart_anew(sample);
  } catch (const LostSample&) {
    return false;
  }
  return true;
}

/// What lies in the page cache may be damaged where the disk is not.
void Decoder::take_apart_anew(LoadedSample& sample) {
  const BusyTime timed(busy_ns_[0]);
  try {
    options_.read_again(sample);
  } catch (...) {
    throw LostSample{std::current_exception()};
  }
  options_.take_apart(sample);
}

}  // namespace sprat::io
