// Records as JSON, as progress lines and as a curve.
#include "train/report.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "sprat/error.hpp"

namespace sprat::train {
namespace {

// Between two lines of progress: often enough to see that it goes on, seldom enough to be read.
constexpr std::chrono::seconds line_interval{2};

/// Of the time, that is waited for a tier. With less, the layers around would hide a faster one's
/// transfers as well.
constexpr double slow_tier_share = 0.1;

[[noreturn]] void refuse_report(const std::string& path, int error) {
  throw Error(ErrorCode::unavailable,
              fmt::format("cannot write report {}: {}", path, std::strerror(error)));
}

std::string slow_tier_warning(const std::string& tier, double share) {
  return fmt::format(
      "\nwarning: {:.0f} % of the time ranks wait for activations on their way to {} and back; "
      "name a faster folder as parallel.activation_tier, keep more of them "
      "(parallel.activation_keep_last), or compute them anew "
      "(parallel.activation_checkpointing \"each\")",
      100 * share, tier);
}

double milliseconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

std::string duration(double seconds) {
  const int whole = static_cast<int>(std::lround(seconds));
  return whole < 60 ? fmt::format("{} s", whole)
                    : fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

/// The report's lines of steps 1 to `step`. A last line that was cut short is none.
std::string lines_until(const std::string& path, int step) {
  std::string kept;
  std::ifstream file(path);
  for (std::string line; step > 0 && std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto its_step = record.is_object() ? record.find("step") : record.end();
    if (its_step == record.end() || !its_step->is_number() || *its_step > step) {
      break;
    }
    kept += line + "\n";
  }
  return kept;
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void include(double value) {
    if (std::isfinite(value)) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
};

}  // namespace

std::string hexadecimal(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

std::string to_json(const StepRecord& record) {
  nlohmann::ordered_json line = {{"step", record.step},
                                 {"loss", record.loss},
                                 {"loss_hex", hexadecimal(record.loss)},
                                 {"tokens_per_s", std::round(record.tokens_per_s)},
                                 {"grad_norm", record.grad_norm},
                                 {"exposed_comm_ms", record.exposed_comm_ms}};
  const auto add = [&](const char* key, const std::optional<double>& value) {
    if (value) {
      line[key] = *value;
    }
  };
  add("bubble", record.bubble);
  add("message_wait_ms", record.message_wait_ms);
  add("load_stall_ms", record.load_stall_ms);
  add("store_wait_ms", record.store_wait_ms);
  add("data_wait_ms", record.data_wait_ms);
  if (record.data_limit) {
    line["data_limit"] = *record.data_limit;
  }
  if (record.skipped) {
    line["skipped"] = true;
  }
  add("loss_scale", record.loss_scale);
  add("validation_loss", record.validation_loss);
  return line.dump();
}

ReportFile::ReportFile(const std::string& path, int kept_steps) : path_(path) {
  const std::string kept = lines_until(path, kept_steps);
  file_.open(path);
  file_ << kept << std::flush;
  if (!file_) {
    refuse_report(path, errno);
  }
}

void ReportFile::try_place(const std::string& path) {
  if (access(path.c_str(), W_OK) == 0) {
    if (std::filesystem::is_directory(path)) {
      refuse_report(path, EISDIR);
    }
    return;
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (errno != ENOENT || access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) {
    refuse_report(path, errno);
  }
}

void ReportFile::write(const StepRecord& record) {
  file_ << to_json(record) << std::endl;
  if (!file_) {
    throw Error(ErrorCode::unavailable,
                fmt::format("cannot write report {}: is the disk full?", path_));
  }
}

std::optional<std::string> Progress::step(const StepRecord& record, Clock::time_point now) {
  ++since_;
  tokens_per_s_ += record.tokens_per_s;
  exposed_ms_ += record.exposed_comm_ms;
  bubble_ += record.bubble.value_or(0);
  stall_ms_ += record.load_stall_ms.value_or(0) + record.store_wait_ms.value_or(0);
  data_ms_ += record.data_wait_ms.value_or(0);
  const bool ends = record.step == done_ + 1 || record.step == steps_ || record.validation_loss;
  const double done = milliseconds(now - begin_);
  const double left = done / (record.step - done_) * (steps_ - record.step) / 1000;
  status_ = {.step = record.step,
             .steps = steps_,
             .loss = record.loss,
             .tokens_per_s = record.tokens_per_s,
             .seconds_left = left,
             .doing = {}};
  if (!ends && now - last_ < line_interval) {
    return std::nullopt;
  }
  reason_ = ends ? Reason::milestone : Reason::time_has_passed;
  std::string line = fmt::format("step {:>{}}/{}  loss {:.4f}", record.step,
                                 std::to_string(steps_).size(), steps_, record.loss);
  line += record.validation_loss ? fmt::format("  validation {:.4f}", *record.validation_loss) : "";
  const double passed = std::max(1e-3, milliseconds(now - last_));
  line += fmt::format("  {:.1f}k tokens/s  exposed communication {:.0f} %",
                      tokens_per_s_ / since_ / 1000, 100 * std::min(1.0, exposed_ms_ / passed));
  line += record.bubble ? fmt::format("  bubble {:.0f} %", 100 * bubble_ / since_) : "";
  const double stall = stall_ms_ / passed;
  line += record.load_stall_ms ? fmt::format("  stall {:.0f} %", 100 * stall) : "";
  // The first batch is waited for by every run, and tells nothing of what follows.
  data_share_ = record.step > done_ + 1 ? data_ms_ / passed : 0;
  line += record.data_wait_ms ? fmt::format("  data {:.0f} %", 100 * data_ms_ / passed) : "";
  line += fmt::format("  {} left", duration(left));
  // The first step makes the files, which is no measure of what follows.
  if (!tier_.empty() && record.step > done_ + 1 && stall > slow_tier_share) {
    line += slow_tier_warning(std::exchange(tier_, ""), stall);
    reason_ = Reason::warning;
  }
  last_ = now;
  since_ = 0;
  tokens_per_s_ = exposed_ms_ = bubble_ = stall_ms_ = data_ms_ = 0;
  return line;
}

RunStatus Progress::status(const char* doing) const {
  RunStatus status = status_;
  status.step = std::max(done_, status.step);
  status.steps = steps_;
  status.doing = doing;
  return status;
}

std::string plot_losses(const std::vector<StepRecord>& records, int columns, int rows,
                        const char* token) {
  if (records.empty()) {
    return "";
  }
  const int steps = static_cast<int>(records.size());
  columns = std::min(columns, steps);
  std::vector<double> sums(columns, 0.0), validation(columns, std::nan(""));
  std::vector<int> counts(columns, 0);
  for (int i = 0; i < steps; ++i) {
    const int column = static_cast<int>(std::int64_t{i} * columns / steps);
    sums[column] += records[i].loss;
    ++counts[column];
    if (records[i].validation_loss) {
      validation[column] = *records[i].validation_loss;
    }
  }
  Range range;
  for (int column = 0; column < columns; ++column) {
    range.include(sums[column] / counts[column]);
    range.include(validation[column]);
  }
  if (!(range.low <= range.high)) {
    return "";
  }
  const double height =
      std::max(range.high - range.low, 1e-9);  // a flat curve has one to divide by
  const auto row_of = [&](double loss) {
    return static_cast<int>(std::lround((range.high - loss) / height * (rows - 1)));
  };
  std::vector<std::string> canvas(rows, std::string(columns, ' '));
  for (int column = 0; column < columns; ++column) {
    const double mean = sums[column] / counts[column];
    if (std::isfinite(mean)) {
      canvas[row_of(mean)][column] = '*';
    }
    if (std::isfinite(validation[column])) {
      canvas[row_of(validation[column])][column] = 'o';
    }
  }
  std::string text = fmt::format("loss (nats per {}): * training, o validation\n", token);
  for (int row = 0; row < rows; ++row) {
    const double level = range.high - height * row / (rows - 1);
    text += fmt::format("{:7.3f} |{}\n", level, canvas[row]);
  }
  const std::string first = std::to_string(records.front().step);
  text +=
      fmt::format("{:8}+{:-<{}}\n{:9}{}{:>{}}\n", "", "", columns, "", first, records.back().step,
                  std::max<int>(1, columns - static_cast<int>(first.size())));
  return text;
}

}  // namespace sprat::train
