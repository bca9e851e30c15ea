// Ranks that agree on a kernel, whatever each of them would choose.
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <string>

#include "sprat/communicator.hpp"
#include "sprat/mp.hpp"

namespace sprat {
namespace {

/// What each of three ranks opens if rank 0 wants `wanted`.
std::set<std::string> agreed(const std::string& wanted) {
  std::mutex mutex;  // guards names
  std::set<std::string> names;
  run_virtual_ranks(3, Config{}, [&](Communicator& world) {
    const auto backend = agree_on_gemm_backend(world, world.rank() == 0 ? wanted : "");
    world.barrier();  // all have opened it, and nobody has let go of it
    const std::lock_guard lock(mutex);
    names.insert(backend->name());
  });
  return names;
}

TEST(GemmAgreement, is_what_rank_0_wants_if_it_has_that) {
  const std::string usual = choose_gemm_backend();
  for (const GemmRate& rate : probe_gemm_backends()) {
    EXPECT_EQ(agreed(rate.backend), std::set{rate.backend});
  }
  EXPECT_EQ(agreed(""), std::set{usual});
  EXPECT_EQ(agreed("openblas"), std::set{usual});
  EXPECT_EQ(agreed("reference"), std::set<std::string>{"reference"});
  EXPECT_EQ(agreed("openblas/Abacus"), std::set{usual});
}

TEST(GemmAgreement, is_the_kernel_that_the_process_of_rank_0_has_open) {
  std::string last;
  for (const GemmRate& rate : probe_gemm_backends()) {
    last = rate.backend.starts_with("openblas/") ? rate.backend : last;
  }
  const auto open = open_gemm_backend(last);
  EXPECT_EQ(choose_gemm_backend(), last);
  EXPECT_EQ(agreed(""), std::set{last});
}

}  // namespace
}  // namespace sprat
