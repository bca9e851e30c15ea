// A line of progress that is drawn anew on a terminal, and is nothing elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sprat::cli {

/// A part of a line; of several there is less room than they take, the least important go first.
struct LineField {
  std::string text;
  int importance = 0;
};

/// The fields in their order, two blanks between them, at most `columns` bytes: what has no room is
/// left out, and a field that alone is too long is cut.
std::string fitted_line(const std::vector<LineField>& fields, std::size_t columns);
/// What makes a terminal whose last line shows `before` characters show `text` instead. No escape
/// sequences: a line is covered with blanks, which every terminal understands.
std::string redrawn(std::size_t before, std::string_view text);

/// "3 min 12 s", "2 h 05 min".
std::string spelled_age(double seconds);

/// Whether `terminal`, a value of TERM, may be null, is one whose cursor goes back in its line.
bool can_redraw(const char* terminal) noexcept;

/// The last line of standard error. One thread.
class LiveLine {
 public:
  /// Draws if `wanted`, and standard error is a terminal that can.
  explicit LiveLine(bool wanted);
  /// Leaves no trace.
  ~LiveLine() { clear(); }
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  bool draws() const { return draws_; }
  /// It is seen where the lines of standard output are, so that those need not repeat it.
  bool stands_below_output() const { return draws_ && output_is_terminal_; }
  /// Draws at most ten times a second; what comes in between is left out.
  void show(const std::vector<LineField>& fields);
  /// Whoever prints a line calls it before.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  void write(const std::string& bytes);

  const bool draws_, output_is_terminal_;
  std::size_t shown_ = 0;  ///< Characters that stand there.
  Clock::time_point next_{};
};

}  // namespace sprat::cli
