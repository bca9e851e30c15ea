// The rules of size and of names: split ideas, never files. CONTRIBUTING.md says them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tests/architecture/outline.hpp"
#include "tests/architecture/source_tree.hpp"

namespace sprat::architecture {
namespace {

constexpr std::size_t most_members = 25, most_lines = 60, most_entries = 40;
constexpr std::ptrdiff_t least_sources_to_tell_of = 3;

/// Code of the library, the trainer and the command; tests and benchmarks are not held to sizes.
bool is_product(const std::string& path) {
  return !path.starts_with("tests/") && !path.starts_with("bench/");
}

TEST(Outline, counts_members_and_lines) {
  const SourceFile file{.path = "x.hpp",
                        .lines = {
                            "namespace sprat::x {",
                            "class A final : public B {",
                            " public:",
                            "  explicit A(int a) : a_{a}, b_(2) {",
                            "    run([] { return 1; });",
                            "  }",
                            "  int get() const;",
                            "",
                            " private:",
                            "  struct Inner {",
                            "    int x = 0, y = 0;  // two; and no more",
                            "  };",
                            "  static constexpr int none = 1;",
                            "  std::function<void(int, int)> call_;",
                            "  std::map<int, std::vector<int>> map_ = {};",
                            "  std::array<int, 3> three_{};",
                            "};",
                            "void f(int a,",
                            "       int b) {",
                            "}",
                            "}  // namespace sprat::x",
                        }};
  const Outline outline = outline_of(file);
  ASSERT_EQ(outline.types.size(), 2u);
  EXPECT_EQ(outline.types[0].space, "sprat::x");
  EXPECT_EQ(outline.types[0].name, "A");
  EXPECT_EQ(outline.types[0].members, 5u);
  EXPECT_EQ(outline.types[1].name, "Inner");
  EXPECT_EQ(outline.types[1].members, 2u);
  ASSERT_EQ(outline.functions.size(), 2u);
  EXPECT_EQ(outline.functions[0].lines, 3u);
  EXPECT_EQ(outline.functions[1].line, 18u);
  EXPECT_EQ(outline.functions[1].lines, 3u);
}

TEST(Outline, counts_members_of_types_that_are_defined_outside_of_theirs) {
  const SourceFile file{.path = "x.cpp",
                        .lines = {
                            "namespace sprat::x {",
                            "class A::B final : public C<int> {",
                            " public:",
                            "  B& operator=(const B&) = delete;",
                            "  void run() {",
                            "  }",
                            "",
                            " private:",
                            "  int a_ = 0;",
                            "  alignas(64) std::atomic<int> b_{0};",
                            "  alignas(line_bytes) int c_[4];",
                            "};",
                            "struct A::D {",
                            "  int d = 0;",
                            "};",
                            "}  // namespace sprat::x",
                        }};
  const Outline outline = outline_of(file);
  ASSERT_EQ(outline.types.size(), 2u);
  EXPECT_EQ(outline.types[0].name, "A::B");
  EXPECT_EQ(outline.types[0].members, 3u);
  EXPECT_EQ(outline.types[1].name, "A::D");
  EXPECT_EQ(outline.types[1].members, 1u);
  ASSERT_EQ(outline.functions.size(), 1u);
  EXPECT_EQ(outline.functions[0].lines, 2u);
}

TEST(Outline, names_enums_of_a_namespace) {
  const SourceFile file{.path = "x.hpp",
                        .lines = {
                            "namespace sprat::x {",
                            "enum class Way : std::uint8_t { here, there };",
                            "enum Plain {",
                            "  none",
                            "};",
                            "struct A {",
                            "  enum class Kind { some };",
                            "};",
                            "}  // namespace sprat::x",
                        }};
  const Outline outline = outline_of(file);
  ASSERT_EQ(outline.enums.size(), 2u);
  EXPECT_EQ(outline.enums[0].space, "sprat::x");
  EXPECT_EQ(outline.enums[0].name, "Way");
  EXPECT_EQ(outline.enums[0].line, 2u);
  EXPECT_EQ(outline.enums[1].name, "Plain");
}

TEST(Sizes, classes_have_few_members) {
  std::size_t types = 0;
  for (const SourceFile& file : source_files()) {
    for (const DefinedType& type : outline_of(file).types) {
      ++types;
      if (is_product(file.path)) {
        EXPECT_LE(type.members, most_members) << file.path << ':' << type.line << ' ' << type.name;
      }
    }
  }
  EXPECT_GT(types, 300u);
}

TEST(Sizes, functions_are_short) {
  std::size_t functions = 0;
  for (const SourceFile& file : source_files()) {
    for (const DefinedFunction& function : outline_of(file).functions) {
      ++functions;
      if (is_product(file.path)) {
        EXPECT_LE(function.lines, most_lines)
            << file.path << ':' << function.line << ' ' << function.head;
      }
    }
  }
  EXPECT_GT(functions, 2000u);
}

TEST(Sizes, folders_have_few_entries) {
  const auto entries = entries_of_folders();
  EXPECT_TRUE(entries.at("comm").contains("README.md"));
  EXPECT_TRUE(entries.at("comm").contains("base"));
  for (const auto& [folder, names] : entries) {
    EXPECT_LE(names.size(), most_entries) << folder;
  }
}

TEST(Sizes, a_folder_of_sources_has_a_readme) {
  static const std::set<std::string> extensions = {".h", ".hpp", ".cpp", ".cu",
                                                   ".c", ".def", ".py"};
  // Rows of a table, which the README of the table's folder tells of.
  static const std::set<std::string> rows = {
      "checkpoint/formats", "fsdp/optimizers", "io/order/samplings",   "io/report/causes",
      "io/report/rules",    "io/tiers",        "plugins/nccl_net/abi",
  };
  std::size_t folders = 0;
  for (const auto& [folder, names] : entries_of_folders()) {
    const auto sources = std::ranges::count_if(names, [](const std::string& name) {
      return extensions.contains(std::filesystem::path(name).extension().string());
    });
    // The public headers are told of by sprat.hpp, and a test lies at the path of what it tests.
    const bool told_elsewhere = rows.contains(folder) || folder.starts_with("comm/transports/") ||
                                folder.starts_with("include/") ||
                                (folder.starts_with("tests/") && folder != "tests/architecture");
    if (sources < least_sources_to_tell_of || told_elsewhere) {
      continue;
    }
    ++folders;
    EXPECT_TRUE(names.contains("README.md")) << folder << " has " << sources << " sources";
  }
  EXPECT_GT(folders, 80u);
}

/// A name that two files of a namespace define is two things with one word.
TEST(Names, a_type_has_one_meaning_in_its_namespace) {
  std::map<std::pair<std::string, std::string>, std::set<std::string>> files;
  for (const SourceFile& file : source_files()) {
    if (!is_product(file.path) || file.path.starts_with("examples/")) {
      continue;
    }
    const Outline outline = outline_of(file);
    for (const DefinedType& type : outline.types) {
      files[{type.space, type.name}].insert(file.path);
    }
    for (const DefinedEnum& one : outline.enums) {
      files[{one.space, one.name}].insert(file.path);
    }
  }
  for (const auto& [name, where] : files) {
    EXPECT_EQ(where.size(), 1u) << name.first << "::" << name.second << " in " << *where.begin()
                                << " and " << *where.rbegin();
  }
}

}  // namespace
}  // namespace sprat::architecture
