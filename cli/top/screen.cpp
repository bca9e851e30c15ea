#include "cli/top/screen.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "cli/progress/live_line.hpp"
#include "comm/base/check.hpp"
#include "comm/base/config.hpp"

namespace sprat::cli {
namespace {

// What terminals have understood since the VT100, and xterm's second page, which leaves what stood
// on the first one alone.
constexpr const char* enter = "\033[?1049h\033[?25l";
constexpr const char* leave = "\033[?25h\033[?1049l";
constexpr const char* home = "\033[H";
constexpr const char* rest_of_line = "\033[K";
constexpr const char* rest_of_page = "\033[J";
constexpr char control_c = 3;

sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int one : {SIGINT, SIGTERM, SIGHUP}) {
    sigaddset(&set, one);
  }
  return set;
}

void show(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

bool has_screen() { return isatty(STDOUT_FILENO) == 1 && can_redraw(environment("TERM")); }

Screen::Screen() : hears_(isatty(STDIN_FILENO) == 1) {
  // A signal would end the program with the terminal as it is: it becomes a key instead.
  const sigset_t set = ending_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  need(signals_ >= 0, "no descriptor for signals: ", std::strerror(errno));
  if (hears_ && tcgetattr(STDIN_FILENO, &before_) == 0) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  show(enter);
}

Screen::~Screen() {
  show(leave);
  if (hears_) {
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  ::close(signals_);
}

TableSpace Screen::space() const {
  winsize size{};
  constexpr TableSpace usual{.columns = 80, .lines = 24};  // of a terminal that does not tell
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return usual;
  }
  return {.columns = size.ws_col, .lines = size.ws_row};
}

void Screen::draw(const std::vector<std::string>& lines) {
  std::string page = home;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    // No end after the last line, or a full page would move up by one.
    page += lines[i] + rest_of_line + (i + 1 < lines.size() ? "\n" : "");
  }
  show(page + rest_of_page);
}

char Screen::key(std::chrono::milliseconds patience) {
  std::array<pollfd, 2> sources{
      pollfd{.fd = signals_, .events = POLLIN, .revents = 0},
      pollfd{.fd = hears_ ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0}};
  if (poll(sources.data(), sources.size(), static_cast<int>(patience.count())) <= 0) {
    return 0;  // also where a signal that means something else, as SIGWINCH, has come
  }
  if (sources[0].revents != 0) {
    return 'q';
  }
  char pressed = 'q';  // of a terminal that has gone there is nothing to read
  const bool gone = ::read(STDIN_FILENO, &pressed, 1) != 1;
  return gone || pressed == control_c ? 'q' : pressed;
}

}  // namespace sprat::cli
