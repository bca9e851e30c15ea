// Sources give reasons: how many of their lines hold a comment. What the reasons are worth, only
// readers can tell.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>

#include "tests/architecture/source_tree.hpp"

namespace sprat::architecture {
namespace {

// Percent of the lines that are not blank. A line holds a comment if "//" or part of a "/* */"
// stands in it outside of quotes, behind code or alone.
constexpr double least_overall = 8, least_in_a_folder = 6;

struct Lines {
  std::size_t comments = 0, all = 0;
  double percent() const {
    return all == 0 ? 0 : 100 * static_cast<double>(comments) / static_cast<double>(all);
  }
};

/// Quotes and raw texts may reach over lines, so what one line leaves open is kept for the next.
class LineCounter {
 public:
  void add(std::string_view line) {
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) {
      return;
    }
    ++lines_.all;
    lines_.comments += holds_comment(line.substr(first)) ? 1 : 0;
  }
  const Lines& lines() const { return lines_; }

 private:
  bool holds_comment(std::string_view rest) {
    bool found = in_comment_;
    while (!rest.empty()) {
      if (in_comment_ || in_raw_text_) {
        const std::string_view end = in_comment_ ? "*/" : ")\"";
        const std::size_t at = rest.find(end);
        if (at == std::string_view::npos) {
          return found;
        }
        in_comment_ = in_raw_text_ = false;
        rest.remove_prefix(at + end.size());
      } else if (rest.starts_with("//")) {
        return true;
      } else if (rest.starts_with("/*")) {
        found = in_comment_ = true;
        rest.remove_prefix(2);
      } else if (rest.starts_with("R\"(")) {
        in_raw_text_ = true;
        rest.remove_prefix(3);
      } else if (rest.front() == '"') {
        rest = behind_quotes(rest);
      } else {
        rest.remove_prefix(rest.starts_with("'\"'") ? 3 : 1);
      }
    }
    return found;
  }
  static std::string_view behind_quotes(std::string_view text) {
    for (std::size_t at = 1; at < text.size(); ++at) {
      if (text[at] == '\\') {
        ++at;
      } else if (text[at] == '"') {
        return text.substr(at + 1);
      }
    }
    return {};
  }

  Lines lines_;
  bool in_comment_ = false, in_raw_text_ = false;
};

TEST(Comments, are_counted_by_lines_that_hold_one) {
  LineCounter counter;
  for (const char* line : {
           "// one",
           "int a;  // two",
           "",
           "   ",
           "const char* url = \"http://none\";",
           "const char quote = '\"';  // three",
           "const char* text = R\"(",
           "none // at all",
           ")\";  // four",
           "/* five",
           "six */ int b;",
           "int c;",
           "\"a \\\" // none\";",
       }) {
    counter.add(line);
  }
  EXPECT_EQ(counter.lines().comments, 6u);
  EXPECT_EQ(counter.lines().all, 11u);
}

TEST(Comments, give_reasons_in_every_folder_of_sources) {
  std::map<std::string, Lines> folders;
  Lines overall;
  for (const SourceFile& file : source_files()) {
    const bool product = !file.path.starts_with("tests/") && !file.path.starts_with("bench/") &&
                         !file.path.starts_with("examples/");
    if (!product || !file.path.ends_with(".cpp")) {
      continue;
    }
    LineCounter counter;
    for (const std::string& line : file.lines) {
      counter.add(line);
    }
    Lines& folder = folders[file.path.substr(0, file.path.find('/'))];
    for (Lines* sum : {&folder, &overall}) {
      sum->comments += counter.lines().comments;
      sum->all += counter.lines().all;
    }
  }
  EXPECT_GT(overall.all, 30'000u);
  EXPECT_GE(overall.percent(), least_overall);
  for (const auto& [folder, lines] : folders) {
    EXPECT_GE(lines.percent(), least_in_a_folder)
        << folder << ": " << lines.comments << " of " << lines.all << " lines";
  }
}

}  // namespace
}  // namespace sprat::architecture
