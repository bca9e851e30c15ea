// What shells offer, held against what CLI11 parses; bash is asked itself.
#include "cli/outline/completions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>

#include "cli/command.hpp"

namespace sprat::cli {
namespace {

using Offered = std::set<std::string>;

/// All commands, as main() prepares them.
std::unique_ptr<CLI::App> the_command() {
  auto app = std::make_unique<CLI::App>("All.", "sprat");
  for (const Command* command : all_commands()) {
    CLI::App* sub = app->add_subcommand(command->name, command->summary);
    sub->footer(command->lesson);
    command->prepare(*sub);
  }
  return app;
}

/// Of each command by its path, what CLI11 parses: straight from its tree, not through an outline.
void add_parsed(const CLI::App& app, const std::string& path, std::map<std::string, Offered>& all) {
  Offered& words = all[path];
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) {
      continue;  // old spellings, which only say what is typed today
    }
    for (const std::string& name : option->get_lnames()) {
      words.insert("--" + name);
    }
    for (const std::string& name : option->get_snames()) {
      words.insert("-" + name);
    }
  }
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    words.insert(sub->get_name());
    add_parsed(*sub, path + "/" + sub->get_name(), all);
  }
}

std::map<std::string, Offered> parsed_words() {
  std::map<std::string, Offered> all;
  add_parsed(*the_command(), "", all);
  return all;
}

Offered offered_in(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

/// What bash completes behind each of `lines`, of which each ends in the word that is being typed.
std::vector<Offered> bash_offers(const std::vector<std::string>& lines) {
  const std::string file = testing::TempDir() + "sprat_completions_" + std::to_string(getpid());
  std::ofstream script(file);
  script << bash_completions(outline_of(*the_command()));
  for (const std::string& line : lines) {
    script << "COMP_WORDS=(" << line << "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _sprat\n"
           << "echo \"${COMPREPLY[*]}\"\n";
  }
  script.close();
  FILE* const bash = popen(("bash " + file + " 2>&1").c_str(), "r");
  std::string text;
  for (std::array<char, 4096> part{}; fgets(part.data(), part.size(), bash) != nullptr;) {
    text += part.data();
  }
  EXPECT_EQ(pclose(bash), 0) << text;
  std::filesystem::remove(file);
  std::vector<Offered> offers;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    offers.push_back(offered_in(line));
  }
  return offers;
}

TEST(BashCompletions, offer_what_the_command_line_parses) {
  const std::map<std::string, Offered> parsed = parsed_words();
  ASSERT_GT(parsed.size(), 20U);
  std::vector<std::string> lines;
  for (const auto& [path, words] : parsed) {
    std::string line = "sprat" + path;
    std::ranges::replace(line, '/', ' ');
    lines.push_back(line + " -");  // options alone
    lines.push_back(line + " ''");
  }
  const std::vector<Offered> offers = bash_offers(lines);
  ASSERT_EQ(offers.size(), lines.size());
  std::size_t at = 0;
  for (const auto& [path, words] : parsed) {
    Offered options;
    std::ranges::copy_if(words, std::inserter(options, options.end()),
                         [](const std::string& word) { return word.starts_with('-'); });
    EXPECT_EQ(offers[at], options) << lines[at];
    EXPECT_TRUE(std::ranges::includes(offers[at + 1], words)) << lines[at + 1];
    at += 2;
  }
}

TEST(BashCompletions, know_values_and_leave_files_and_other_programs_to_bash) {
  EXPECT_THAT(
      bash_offers({"sprat bench --memory ''", "sprat bench --memory sh", "sprat train --report ''",
                   "sprat launch -n 2 -- ''", "sprat help par", "sprat completions ''",
                   "sprat help train -"}),
      testing::ElementsAre(Offered{"private", "shared"}, Offered{"shared"}, Offered{}, Offered{},
                           Offered{"partition"}, testing::IsSupersetOf({"bash", "fish", "zsh"}),
                           Offered{"-h", "--help"}));
}

TEST(Completions, of_zsh_and_fish_have_each_option_of_each_command) {
  const std::unique_ptr<CLI::App> app = the_command();
  const CommandOutline root = outline_of(*app);
  const std::string zsh = zsh_completions(root), fish = fish_completions(root);
  for (const auto& [path, words] : parsed_words()) {
    std::string function = "\n_sprat" + path + "() {";
    std::ranges::replace(function, '/', '_');
    const std::size_t begin = zsh.find(function);
    ASSERT_NE(begin, std::string::npos) << function;
    const std::string body = zsh.substr(begin, zsh.find("\n}", begin) - begin);
    const std::string row =
        "complete -c sprat -n '__sprat_at " + (path.empty() ? std::string("/") : path) + "'";
    for (const std::string& word : words) {
      const bool option = word.starts_with('-');
      EXPECT_NE(body.find(option ? "'" + word + "[" : "'" + word + ":"), std::string::npos)
          << path << " " << word;
      const std::string flag = word.starts_with("--") ? " -l " + word.substr(2) + " "
                               : option               ? " -s " + word.substr(1) + " "
                                                      : " -a " + word + " ";
      bool found = false;
      std::istringstream lines(fish);
      for (std::string line; std::getline(lines, line) && !found;) {
        found = line.starts_with(row) && line.find(flag) != std::string::npos;
      }
      EXPECT_TRUE(found) << row << flag;
    }
  }
}

TEST(Completions, help_is_cut_to_a_line_and_quoted) {
  EXPECT_EQ(in_one_line("One of them. Another sentence"), "One of them");
  EXPECT_EQ(in_one_line("First\nsecond"), "First");
  EXPECT_EQ(quoted("it's"), "'it'\\''s'");
  const CommandOutline root{.name = "x",
                            .summary = {},
                            .lesson = {},
                            .options = {{{"--a"}, "K=V", {}, "it's [one]: \\", false, false}},
                            .positionals = {},
                            .commands = {}};
  EXPECT_THAT(zsh_completions(root),
              testing::HasSubstr(R"('--a[it'\''s \[one\]\: \\]:K=V:_files')"));
  EXPECT_THAT(fish_completions(root), testing::HasSubstr(R"(-l a -d 'it\'s [one]: \\' -r)"));
}

TEST(Completions, outline_hides_what_the_command_hides) {
  CLI::App app("Some.", "x");
  int number = 0;
  app.add_option("--seen,-s", number, "Seen")->check(CLI::IsMember({1, 2}));
  app.add_option("--unseen", number, "Unseen")->group("");
  app.add_subcommand("inner", "Seen");
  app.add_subcommand("hidden", "Unseen")->group("");
  const CommandOutline outline = outline_of(app);
  ASSERT_EQ(outline.options.size(), 2U);  // --help is the first
  EXPECT_THAT(outline.options[1].names, testing::ElementsAre("--seen", "-s"));
  EXPECT_THAT(outline.options[1].choices, testing::ElementsAre("1", "2"));
  EXPECT_EQ(outline.options[1].value, "INT");
  ASSERT_EQ(outline.commands.size(), 1U);
  EXPECT_EQ(outline.commands[0].name, "inner");
}

}  // namespace
}  // namespace sprat::cli
