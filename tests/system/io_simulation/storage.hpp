// Storage on paper: targets that serve reads at the same time, share servers and this host's
// network, and have what is wrong with them by a script. Time is virtual.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "io/reading/request.hpp"
#include "io/reading/retries.hpp"
#include "tests/system/simulation/random.hpp"

namespace sprat::io_simulation {

using io::Moment;
using io::Target;
using simulation::Random;

constexpr double never_ending = std::numeric_limits<double>::infinity();

inline double seconds_of(Moment moment) { return std::chrono::duration<double>(moment).count(); }
inline Moment moment_of(double seconds) { return Moment(std::llround(seconds * 1e9)); }

/// Bytes a second and bytes. A target gives `burst` as long as it has credit, then `base`; what it
/// gives above base takes credit, what it gives below gives it back.
struct TargetModel {
  double base = 250e6, burst = 250e6, credit_bytes = 0;
  double latency_s = 1e-3;
  double jitter = 0.2;  ///< Latencies are up to so much longer.
  int server = 0;
};

struct StorageModel {
  std::vector<TargetModel> targets;
  double flow = 625e6;      ///< Of a server, to this host.
  double network = 1.25e9;  ///< Of this host.
  double opens_per_second = 1e4;
  double open_latency_s = 5e-4;
};

/// Something that is wrong from one moment to another.
struct Trouble {
  enum class Kind : std::uint8_t {
    slow,         ///< The target gives `factor` of its rate: others use it, too.
    fails,        ///< Reads of the target fail with `error`.
    hangs,        ///< A read of the target that begins then is answered when the time is over.
    stale,        ///< Reads of `file` fail with ESTALE until it is opened anew.
    short_reads,  ///< Of all reads a share of `factor` ends early.
    flips,        ///< Of all reads a share of `factor` brings a wrong bit.
    metadata,     ///< Opening takes 1 / `factor` times as long: others open files, too.
    decoding,     ///< Not of storage: decoding a batch takes `factor` times as long.
  };
  Kind kind = Kind::slow;
  Target target = 0;
  std::uint32_t file = 0;
  double from_s = 0, until_s = never_ending;
  double factor = 1;
  int error = 0;

  bool at(double now) const { return now >= from_s && now < until_s; }
};

struct StoredFile {
  std::uint64_t bytes = 0;
  io::FileLayout layout;
  double restore_s = 0;  ///< If more than 0, the first read waits so long for the archive.
};

struct SimulatedRead {
  std::uint64_t id = 0;
  io::Extent extent;
  Target target = 0;
  bool reopen = false;
};

struct SimulatedDone {
  std::uint64_t id = 0;
  Target target = 0;
  std::uint64_t bytes = 0;
  int error = 0;
  double took_s = 0;
  bool flipped = false, cut = false;  ///< cut: the file has more there than came.
};

/// What was opened, and how long that took.
struct SimulatedOpen {
  double took_s = 0;
};

class Storage {
 public:
  Storage(StorageModel model, std::vector<StoredFile> files, std::vector<Trouble> troubles,
          std::uint64_t seed);

  void start(const SimulatedRead& read);
  /// When something happens next.
  double next_event() const;
  /// Moves on to `now`, which is not later than next_event().
  std::vector<SimulatedDone> advance(double now);

  double now() const { return now_; }
  std::vector<SimulatedOpen> take_opens() { return std::exchange(opens_, {}); }
  std::uint64_t take_restored() { return std::exchange(restored_, 0); }
  double waits_for_restore() const;  ///< Reads that do.
  std::uint64_t released_bytes() const;
  std::size_t reads_at(Target target) const;

 private:
  struct Served {
    SimulatedRead read;
    double begun = 0, ready = 0;  // when the transfer begins
    double left = 0;              // bytes
    std::uint64_t brings = 0;     // bytes
    int error = 0;
    bool flipped = false, restores = false, cut = false;
  };

  double opened_at(std::uint32_t file, bool anew);
  void decide(Served& served);
  /// Of each target: reads whose bytes flow, and bytes a second to all of them.
  struct Flow {
    std::vector<int> active;
    std::vector<double> rates;
  };
  const Flow& flow() const;
  std::vector<double> shared_rates(const std::vector<int>& active) const;
  double capacity(std::size_t target) const;
  double factor(Trouble::Kind kind) const;
  double rate_of_read(const Served& served) const;
  std::vector<int> active() const;

  StorageModel model_;
  std::vector<StoredFile> files_;
  std::vector<Trouble> troubles_;
  Random random_;
  double now_ = 0;
  std::vector<Served> served_;
  mutable std::optional<Flow> flow_;  // as long as nothing begins or ends
  std::vector<double> credits_;
  std::vector<bool> open_, restored_files_;
  std::map<std::uint32_t, double> restoring_;  // files, and when they are there
  std::map<std::uint32_t, double> opened_;     // when the descriptor in use was opened
  double metadata_free_ = 0;
  std::vector<SimulatedOpen> opens_;
  std::uint64_t restored_ = 0;
};

/// `limit` shared fairly among those who want `wants` at most.
std::vector<double> fair_shares(const std::vector<double>& wants, double limit);

}  // namespace sprat::io_simulation
