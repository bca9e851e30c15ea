// The factor that bounds a norm.
#include "fsdp/clip.hpp"

#include <gtest/gtest.h>

namespace sprat::fsdp {
namespace {

TEST(Clip, factor_bounds_the_norm) {
  EXPECT_EQ(clip_factor(10, 0), 1.0) << "0 is no limit";
  EXPECT_EQ(clip_factor(0.5, 1), 1.0);
  EXPECT_EQ(clip_factor(4, 1), 1.0 / (4 + 1e-6));
  EXPECT_EQ(clip_factor(0, 1), 1.0);
}

}  // namespace
}  // namespace sprat::fsdp
