// A terminal that shows a page at a time and hears single keys.
#pragma once

#include <termios.h>

#include <chrono>
#include <string>
#include <vector>

#include "cli/top/table.hpp"

namespace sprat::cli {

/// Standard output is a terminal that can move its cursor.
bool has_screen();

/// Takes standard output, and standard input if it is a terminal, until it goes: then all is as it
/// was.
class Screen {
 public:
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  TableSpace space() const;
  void draw(const std::vector<std::string>& lines);
  /// The key that was pressed; 0 after `patience` without one; 'q' for Ctrl-C, and for the signals
  /// that end a program.
  char key(std::chrono::milliseconds patience);

 private:
  bool hears_ = false;
  termios before_{};
  int signals_ = -1;
};

}  // namespace sprat::cli
