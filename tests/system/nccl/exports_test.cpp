// What the library exports: every name of the list, and nothing else; and all that NCCL's own
// library does, where there is one.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

namespace sprat::nccl_tests {
namespace {

/// nccl<name> and pnccl<name> of functions.def, and the one that no header declares.
std::set<std::string> listed() {
  std::set<std::string> names = {"ncclResetDebugInitInternal"};
#define SPRAT_NCCL(result, name, parameters, arguments) \
  names.insert("nccl" #name);                           \
  names.insert("pnccl" #name);
#include "plugins/nccl_abi/functions.def"
  return names;
}

/// What `nm -D` finds; empty without nm.
std::set<std::string> exported(const std::string& library) {
  const std::unique_ptr<FILE, int (*)(FILE*)> nm(
      popen(("nm -D --defined-only --format=posix '" + library + "' 2>&1").c_str(), "r"), pclose);
  std::set<std::string> names;
  std::array<char, 512> line{};
  while (nm && fgets(line.data(), line.size(), nm.get()) != nullptr) {
    const std::string text(line.data());
    const std::string name = text.substr(0, text.find_first_of(" @\n"));
    if (text.find(" T ") != text.npos || text.find(" W ") != text.npos) {
      names.insert(name);
    }
  }
  return names;
}

TEST(NcclExports, are_the_list_and_nothing_else) {
  const std::set<std::string> names = exported(SPRAT_NCCL_LIBRARY);
  if (names.empty()) {
    GTEST_SKIP() << "no nm here";
  }
  EXPECT_EQ(names, listed());
}

// A profiler defines ncclX and calls pncclX.
TEST(NcclExports, are_aliases_of_each_other) {
  void* const library = dlopen(SPRAT_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const std::string& name : listed()) {
    ASSERT_NE(dlsym(library, name.c_str()), nullptr) << name;
    if (name.starts_with("pnccl")) {
      EXPECT_EQ(dlsym(library, name.c_str()), dlsym(library, name.substr(1).c_str())) << name;
    }
  }
}

TEST(NcclExports, lack_nothing_of_nvidias) {
  const std::string theirs = "/usr/local/cuda/lib64/libnccl.so.2";
  if (!std::filesystem::exists(theirs)) {
    GTEST_SKIP() << "no NCCL to compare with at " << theirs;
  }
  const std::set<std::string> ours = exported(SPRAT_NCCL_LIBRARY);
  for (const std::string& name : exported(theirs)) {
    if (name.starts_with("nccl") || name.starts_with("pnccl")) {
      EXPECT_TRUE(ours.contains(name)) << name;
    }
  }
}

}  // namespace
}  // namespace sprat::nccl_tests
