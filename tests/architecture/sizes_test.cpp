// The rules of size and of names: split ideas, never files. CONTRIBUTING.md says them.
#include <gtest/gtest.h>

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

TEST(Sizes, a_folder_of_the_library_has_a_readme) {
  std::set<std::string> folders;
  for (const SourceFile& file : source_files()) {
    const std::string folder = std::filesystem::path(file.path).parent_path().generic_string();
    const bool library = file.path.starts_with("comm/") || file.path.starts_with("collectives/") ||
                         file.path.starts_with("fsdp/plan/") ||
                         file.path.starts_with("checkpoint/plan/");
    // A table's rows are told by the folder that holds the table.
    const bool rows = folder.find("/transports/") != folder.npos;
    if (library && !rows) {
      folders.insert(folder);
    }
  }
  for (const std::string& folder : folders) {
    EXPECT_TRUE(std::filesystem::exists(source_root() / folder / "README.md")) << folder;
  }
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
