// Who is on the GPUs, asked of a stand-in for NVIDIA's library.
#include "cli/top/gpus.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/io/loader/nvml_stand_in.h"

namespace sprat::cli {
namespace {

using ::testing::Optional;

TEST(TopGpus, are_summed_by_process) {
  void* opened = dlopen(SPRAT_NVML_STAND_IN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(opened, nullptr) << dlerror();
  auto* nvml = static_cast<NvmlStandIn*>(dlsym(opened, "nvml_stand_in"));
  ASSERT_NE(nvml, nullptr);
  *nvml = {};
  nvml->count = 3;
  for (const unsigned gpu : {0u, 1u, 2u}) {
    nvml->processes[gpu] = 2;
    nvml->last_pid[gpu] = gpu < 2 ? 4711 : 4712;
    nvml->memory[gpu] = gpu < 2 ? 1000 + gpu : ~0ull;  // the last one is not told
    nvml->use[gpu] = 20 * gpu + 20;
  }
  nvml->use_code[2] = 3;  // not supported
  {
    GpuProcesses gpus(SPRAT_NVML_STAND_IN);
    const auto used = gpus.of({4711, 4712, 4713});
    ASSERT_TRUE(used.has_value());
    ASSERT_EQ(used->size(), 2u) << "4713 is on none";
    EXPECT_THAT(used->at(4711).bytes, Optional(2001u));
    EXPECT_THAT(used->at(4711).busy, Optional(testing::DoubleEq(0.3)));
    EXPECT_EQ(used->at(4712).bytes, std::nullopt);
    EXPECT_EQ(used->at(4712).busy, std::nullopt);
  }
  EXPECT_EQ(nvml->begun, nvml->ended);
  dlclose(opened);
}

TEST(TopGpus, are_no_column_where_no_library_tells) {
  EXPECT_FALSE(GpuProcesses("libsprat-nowhere.so").of({1}).has_value());
}

}  // namespace
}  // namespace sprat::cli
