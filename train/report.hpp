// What a run tells: a line of JSON for each step, lines for people, a curve of the loss as text.
#pragma once

#include <chrono>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sprat::train {

/// Of the time: whoever waits longer for data would train faster with a faster disk, or more
/// threads.
inline constexpr double slow_data_share = 0.05;

/// What one step came to.
struct StepRecord {
  int step = 0;  ///< From 1.
  double loss = 0;
  double tokens_per_s = 0;
  double grad_norm = 0;
  double exposed_comm_ms = 0;  ///< This rank's time in collectives that nothing hid.
  /// Of a pipeline, as means over ranks: the part of a step's passes in which a rank did not
  /// compute, and how long it waited for messages of other stages.
  std::optional<double> bubble, message_wait_ms;
  /// Where activations are offloaded, means over ranks: waiting until they were back, and until the
  /// tier took more.
  std::optional<double> load_stall_ms, store_wait_ms;
  /// Where data is read while a run trains: waiting for the step's batch, as a mean over ranks; and
  /// what limits reading, on rank 0, where much of the time since the last line went into that.
  std::optional<double> data_wait_ms;
  std::optional<std::string> data_limit;
  bool skipped = false;                   ///< The gradient was not finite: nothing changed.
  std::optional<double> loss_scale;       ///< That the step used, where it may change.
  std::optional<double> validation_loss;  ///< After the step, where it was measured.
};

/// How far a run is, at any moment.
struct RunStatus {
  int step = 0, steps = 0;     ///< Done, and where it ends.
  std::optional<double> loss;  ///< Of the last step; nothing before one is done.
  double tokens_per_s = 0;     ///< Likewise.
  std::optional<double> seconds_left;
  std::string doing;  ///< "training", "validating", "saving".
};

/// "0x1.8p+1": every bit of the value.
std::string hexadecimal(double value);
/// The record as one line of JSON, without its end.
std::string to_json(const StepRecord& record);

/// Appends records to a file, a line each, at once.
class ReportFile {
 public:
  /// Keeps the lines of the first `kept_steps` steps that the file has, for a run that resumes.
  /// Throws Error{unavailable} naming the path.
  explicit ReportFile(const std::string& path, int kept_steps = 0);
  /// Throws as the constructor would, and leaves nothing at `path`.
  static void try_place(const std::string& path);
  /// Throws Error{unavailable} naming the path.
  void write(const StepRecord& record);

 private:
  std::string path_;
  std::ofstream file_;
};

/// The line for people: how far, how good, how fast, how long still.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  /// Of a run to step `steps` that has `done` behind it already; activations leave for `tier`, if
  /// it has a name.
  Progress(int done, int steps, Clock::time_point now, std::string tier = "")
      : done_(done), steps_(steps), begin_(now), last_(now), tier_(std::move(tier)) {}
  /// Counts a step; a line when there is something to say (every two seconds, first, last,
  /// validation), and once another one that warns of a tier that is too slow.
  std::optional<std::string> step(const StepRecord& record, Clock::time_point now);
  /// What the last line was there for.
  enum class Reason { time_has_passed, milestone, warning };
  Reason reason() const { return reason_; }
  RunStatus status(const char* doing) const;
  /// Whether data was waited for so long before the last line that its reader should say why.
  bool waits_for_data() const { return data_share_ > slow_data_share; }

 private:
  int done_, steps_;
  Clock::time_point begin_, last_;            // of the run, of the last line
  int since_ = 0;                             // steps since the last line
  double tokens_per_s_ = 0, exposed_ms_ = 0;  // summed over them
  double bubble_ = 0, stall_ms_ = 0, data_ms_ = 0;
  double data_share_ = 0;  // of the time between the last two lines
  std::string tier_;       // nobody warned of it yet
  Reason reason_ = Reason::time_has_passed;
  RunStatus status_;
};

/// Training loss as a curve of `columns` x `rows` characters, with validation losses as circles.
/// `token`: what a loss is of.
std::string plot_losses(const std::vector<StepRecord>& records, int columns, int rows,
                        const char* token = "byte");

}  // namespace sprat::train
