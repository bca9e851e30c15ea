// How busy GPUs are, asked of a stand-in for NVIDIA's library: no machine of the tests need have
// one.
#include "io/loader/gpu_use.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

#include "sprat/data.hpp"
#include "tests/unit/io/loader/nvml_stand_in.h"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

constexpr int not_supported = 3, driver_not_loaded = 9;

/// The stand-in, open for as long as this is, without any GPU at first.
class StandInLibrary {
 public:
  StandInLibrary() : opened_(dlopen(SPRAT_NVML_STAND_IN, RTLD_NOW | RTLD_LOCAL)) {
    void* found = opened_ != nullptr ? dlsym(opened_, "nvml_stand_in") : nullptr;
    if (found == nullptr) {
      throw std::runtime_error("the stand-in for NVML is not there: " SPRAT_NVML_STAND_IN);
    }
    answers_ = static_cast<NvmlStandIn*>(found);
    *answers_ = {};
  }
  ~StandInLibrary() { dlclose(opened_); }
  StandInLibrary(const StandInLibrary&) = delete;
  StandInLibrary& operator=(const StandInLibrary&) = delete;
  NvmlStandIn* operator->() const { return answers_; }

 private:
  void* opened_;
  NvmlStandIn* answers_;
};

TEST(GpuUse, the_mean_of_all_is_told_where_nobody_says_whose_they_are) {
  const StandInLibrary nvml;
  nvml->count = 2;
  nvml->use[0] = 100;
  nvml->use[1] = 50;
  EXPECT_THAT(GpuUse(SPRAT_NVML_STAND_IN).busy(), Optional(0.75));
}

TEST(GpuUse, gpus_of_other_processes_do_not_count) {
  const StandInLibrary nvml;
  nvml->count = 3;
  for (const int gpu : {0, 1, 2}) {
    nvml->use[gpu] = 30u * static_cast<unsigned>(gpu) + 10;
    nvml->processes[gpu] = 2;
    nvml->last_pid[gpu] = static_cast<unsigned>(getpid()) + (gpu == 1 ? 0u : 1u);
  }
  EXPECT_THAT(GpuUse(SPRAT_NVML_STAND_IN).busy(), Optional(0.4));
}

TEST(GpuUse, this_process_is_found_among_many) {
  const StandInLibrary nvml;
  nvml->count = 2;
  nvml->use[0] = 20;
  nvml->use[1] = 80;
  nvml->processes[1] = 1000;
  nvml->last_pid[1] = static_cast<unsigned>(getpid());
  EXPECT_THAT(GpuUse(SPRAT_NVML_STAND_IN).busy(), Optional(0.8));
}

TEST(GpuUse, gpus_that_tell_nothing_are_left_out) {
  const StandInLibrary nvml;
  nvml->count = 3;
  nvml->use[0] = 60;
  nvml->use_code[1] = not_supported;
  nvml->handle_code[2] = driver_not_loaded;
  EXPECT_THAT(GpuUse(SPRAT_NVML_STAND_IN).busy(), Optional(0.6));
  nvml->use_code[0] = not_supported;
  EXPECT_EQ(GpuUse(SPRAT_NVML_STAND_IN).busy(), std::nullopt);
}

TEST(GpuUse, is_empty_without_library_driver_or_gpu) {
  EXPECT_EQ(GpuUse("libno-such-library.so.1").busy(), std::nullopt);
  EXPECT_EQ(GpuUse("libm.so.6").busy(), std::nullopt);  // has none of the functions
  const StandInLibrary nvml;
  EXPECT_EQ(GpuUse(SPRAT_NVML_STAND_IN).busy(), std::nullopt);
  nvml->count = 1;
  nvml->init_code = driver_not_loaded;
  EXPECT_EQ(GpuUse(SPRAT_NVML_STAND_IN).busy(), std::nullopt);
}

TEST(GpuUse, ends_what_it_begins) {
  const StandInLibrary nvml;
  GpuUse(SPRAT_NVML_STAND_IN).busy();  // shows no GPU
  EXPECT_EQ(nvml->ended, 1);
  nvml->count = 1;
  {
    GpuUse gpus(SPRAT_NVML_STAND_IN);
    EXPECT_EQ(nvml->begun, 1) << "nothing is opened before it is asked";
    gpus.busy();
    gpus.busy();
    EXPECT_EQ(nvml->begun, 2);
  }
  EXPECT_EQ(nvml->ended, 2);
  nvml->init_code = driver_not_loaded;
  GpuUse(SPRAT_NVML_STAND_IN).busy();
  EXPECT_EQ(nvml->ended, 2) << "what did not begin does not end";
}

// The stand-in has the name that loaders look for, so what is open already is what they find.
TEST(GpuUse, a_loaders_report_has_it) {
  const StandInLibrary nvml;
  nvml->count = 1;
  nvml->use[0] = 37;
  const TemporaryFolder folder;
  std::ofstream(folder / "a.jsonl") << "{\"a\": 1}\n";
  Loader loader({.sources = {{.paths = {folder / "a.jsonl"}}}});
  EXPECT_THAT(loader.report().json, HasSubstr("\"gpu_busy\":0.37"));
}

}  // namespace
}  // namespace sprat::io
