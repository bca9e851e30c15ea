#include "cli/progress/live_line.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "comm/base/config.hpp"

namespace sprat::cli {
namespace {

// As fast as eyes can read numbers; a terminal over a slow line still keeps up.
constexpr std::chrono::milliseconds least_interval{100};
constexpr std::size_t usual_columns = 80;

std::size_t columns_of(int terminal) {
  winsize size{};
  return ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : usual_columns;
}

}  // namespace

std::string fitted_line(const std::vector<LineField>& fields, std::size_t columns) {
  constexpr std::size_t gap = 2;
  std::vector<std::size_t> order(fields.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t at) { return fields[at].text.empty(); });
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return fields[a].importance > fields[b].importance;
  });
  std::vector<std::size_t> kept;
  std::size_t taken = 0;
  for (const std::size_t at : order) {
    const std::size_t more = fields[at].text.size() + (kept.empty() ? 0 : gap);
    // The most important one stays, cut if it must be: a line that says nothing tells nobody.
    if (!kept.empty() && taken + more > columns) {
      continue;
    }
    kept.push_back(at);
    taken += more;
  }
  std::ranges::sort(kept);
  std::string line;
  for (const std::size_t at : kept) {
    line += std::string(line.empty() ? 0 : gap, ' ') + fields[at].text;
  }
  line.resize(std::min(line.size(), columns));
  return line;
}

std::string redrawn(std::size_t before, std::string_view text) {
  std::string bytes = "\r" + std::string(text);
  if (before > text.size()) {
    // And back over the blanks, so that the cursor stands behind the text.
    bytes += std::string(before - text.size(), ' ') + "\r" + std::string(text);
  }
  return bytes;
}

std::string spelled_age(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::max(0.0, seconds));
  if (whole < 60) {
    return fmt::format("{} s", whole);
  }
  return whole < 3600 ? fmt::format("{} min {:02} s", whole / 60, whole % 60)
                      : fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

bool can_redraw(const char* terminal) noexcept {
  return terminal != nullptr && *terminal != '\0' && std::string_view(terminal) != "dumb";
}

LiveLine::LiveLine(bool wanted)
    : draws_(wanted && isatty(STDERR_FILENO) == 1 && can_redraw(environment("TERM"))),
      output_is_terminal_(isatty(STDOUT_FILENO) == 1) {}

void LiveLine::show(const std::vector<LineField>& fields) {
  const Clock::time_point now = Clock::now();
  if (!draws_ || now < next_) {
    return;
  }
  next_ = now + least_interval;
  // Not in the last column: there a terminal may go on in the next line.
  const std::string line = fitted_line(fields, columns_of(STDERR_FILENO) - 1);
  write(redrawn(shown_, line));
  shown_ = line.size();
}

void LiveLine::clear() {
  if (shown_ > 0) {
    write(redrawn(shown_, ""));
    shown_ = 0;
    next_ = {};  // what was covered by a line comes back at once
  }
}

// One call, so that lines of other processes on the same terminal do not come into the midst of it.
// Whoever reads it may be gone, which is no reason to end what goes on.
void LiveLine::write(const std::string& bytes) {
  static_cast<void>(!::write(STDERR_FILENO, bytes.data(), bytes.size()));
}

}  // namespace sprat::cli
