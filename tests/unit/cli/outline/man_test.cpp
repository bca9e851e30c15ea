// Manual pages have each option, and nothing that roff takes for a request of its own.
#include "cli/outline/man.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <set>
#include <sstream>
#include <string>

#include "cli/command.hpp"

namespace sprat::cli {
namespace {

CommandOutline the_outline() {
  CLI::App app("All.", "sprat");
  for (const Command* command : all_commands()) {
    CLI::App* sub = app.add_subcommand(command->name, command->summary);
    sub->footer(command->lesson);
    command->prepare(*sub);
  }
  return outline_of(app);
}

TEST(ManPages, have_each_command_and_each_option) {
  const CommandOutline root = the_outline();
  const std::vector<ManPage> pages = man_pages(root, "1.2.3");
  ASSERT_EQ(pages.size(), root.commands.size() + 1);
  EXPECT_EQ(pages.front().name, "sprat");
  for (std::size_t i = 0; i < root.commands.size(); ++i) {
    EXPECT_EQ(pages[i + 1].name, "sprat-" + root.commands[i].name);
    for (const PathOutline& place : paths_of(root.commands[i])) {
      for (const OptionOutline& option : place.command->options) {
        EXPECT_THAT(pages[i + 1].text,
                    testing::HasSubstr(".B " + roff_of(spelling_of(option)) + "\n"));
      }
    }
  }
}

TEST(ManPages, have_no_request_but_ours) {
  const std::set<std::string> ours = {".TH", ".SH", ".SS", ".TP", ".B", ".BR",
                                      ".I",  ".br", ".PP", ".EX", ".EE"};
  for (const ManPage& page : man_pages(the_outline(), "1.2.3")) {
    std::istringstream lines(page.text);
    int verbatim = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('.') || line.starts_with('\'')) {
        const std::string request = line.substr(0, line.find(' '));
        EXPECT_TRUE(ours.contains(request)) << page.name << ": " << line;
        verbatim += request == ".EX" ? 1 : request == ".EE" ? -1 : 0;
      }
      ASSERT_TRUE(verbatim == 0 || verbatim == 1) << page.name << ": " << line;
    }
    EXPECT_EQ(verbatim, 0) << page.name;
  }
}

TEST(ManPages, text_is_taken_as_it_is) {
  EXPECT_EQ(roff_of(".a\n'b\n--c \\"), "\\&.a\n\\&'b\n\\-\\-c \\e");
  EXPECT_EQ(roff_of_lesson("Text\nflows.\n\nExamples:\n  one -a\n  two\nend"),
            "Text\nflows.\n.PP\n.SS Examples\n.EX\n  one \\-a\n  two\n.EE\nend\n");
}

}  // namespace
}  // namespace sprat::cli
