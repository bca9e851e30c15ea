// What a reduction refuses, and what it does not depend on.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cfenv>
#include <cstring>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "sprat/error.hpp"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace sprat::collectives {
namespace {

TEST(ReduceContract, refuses_terms_that_do_not_make_up_the_tree) {
  const float value = 1;
  float to = 0;
  const std::vector<std::vector<RankRange>> wrong = {
      {},                        // nothing
      {{0, 3}},                  // too few
      {{0, 2}, {3, 4}},          // a gap
      {{0, 2}, {1, 4}},          // an overlap
      {{0, 1}, {1, 3}, {3, 4}},  // [1, 3) is no subtree
      {{0, 1}, {1, 4}},          // nor is [1, 4), and only a first term may be none
      {{0, 1}, {1, 1}, {1, 4}},  // an empty range
      {{0, 4}, {4, 4}},          // even behind the rest
  };
  for (const auto& ranges : wrong) {
    std::vector<Term> terms;
    for (const RankRange range : ranges) {
      terms.push_back({&value, range, true});
    }
    EXPECT_THROW(collectives::reduce({.ranks = 4}, terms, &to, 1), Error)
        << ranges.size() << " terms";
  }
}

TEST(ReduceContract, refuses_an_output_type_that_would_round_twice_or_lose) {
  const std::uint64_t value = 0;
  std::uint64_t to = 0;
  const Term term = {&value, {0, 1}, false};
  for (const DType input : all_dtypes()) {
    for (const DType output : all_dtypes()) {
      const Arithmetic arithmetic = {.input = input, .output = output};
      if (output == input || output == accumulator_of(input)) {
        EXPECT_NO_THROW(reduce(arithmetic, {&term, 1}, &to, 1)) << name(input) << name(output);
      } else {
        EXPECT_THROW(reduce(arithmetic, {&term, 1}, &to, 1), Error) << name(input) << name(output);
      }
    }
  }
}

TEST(ReduceContract, refuses_operations_that_a_type_does_not_have) {
  const std::uint64_t value = 0;
  std::uint64_t to = 0;
  const Term term = {&value, {0, 1}, false};
  for (const DType dtype : all_dtypes()) {
    for (const ReduceOp op : all_reduce_ops()) {
      const Arithmetic arithmetic = {.input = dtype, .output = dtype, .op = op};
      if (takes(op, dtype)) {
        EXPECT_NO_THROW(reduce(arithmetic, {&term, 1}, &to, 1)) << name(op) << name(dtype);
        continue;
      }
      try {
        reduce(arithmetic, {&term, 1}, &to, 1);
        ADD_FAILURE() << name(op) << " of " << name(dtype) << " went through";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        const std::string begin = std::string(name(op)) + " does not reduce " + name(dtype);
        EXPECT_EQ(std::string(error.what()).rfind(begin, 0), 0u) << error.what();
      }
    }
  }
}

TEST(ReduceContract, knows_its_targets) {
  const std::vector<std::string> targets = reduce_targets();
  ASSERT_FALSE(targets.empty());
  EXPECT_FALSE(use_reduce_target("abacus"));
  for (const std::string& target : targets) {
    EXPECT_TRUE(use_reduce_target(target)) << target;
    EXPECT_EQ(reduce_targets(), targets);
  }
  EXPECT_TRUE(use_reduce_target(""));
}

TEST(ReduceContract, does_not_depend_on_the_rounding_mode_of_the_thread) {
  const float large = 0x1p24f, small = 1.0f;  // Their sum lies midway between two floats.
  const Term terms[] = {{&large, {0, 1}, false}, {&small, {1, 2}, false}};
  for (const std::string& target : reduce_targets()) {
    ASSERT_TRUE(use_reduce_target(target));
    for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST}) {
      float sum = 0;
      ASSERT_EQ(std::fesetround(mode), 0);
      collectives::reduce({.ranks = 2}, terms, &sum, 1);
      EXPECT_EQ(std::fegetround(), mode) << target;
      std::fesetround(FE_TONEAREST);
      EXPECT_EQ(sum, 0x1p24f) << target << " mode " << mode;
    }
  }
  use_reduce_target("");
}

#if defined(__SSE2__)
TEST(ReduceContract, does_not_depend_on_the_denormal_mode_of_the_thread) {
  constexpr unsigned flush_and_zero = 0x8040;
  const float smallest = 0x1p-149f;
  const Term terms[] = {{&smallest, {0, 1}, false}, {&smallest, {1, 2}, false}};
  for (const std::string& target : reduce_targets()) {
    ASSERT_TRUE(use_reduce_target(target));
    float sum = 0;
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | flush_and_zero);
    collectives::reduce({.ranks = 2}, terms, &sum, 1);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    EXPECT_EQ(after & flush_and_zero, flush_and_zero) << target;
    EXPECT_EQ(sum, 0x1p-148f) << target;
  }
  use_reduce_target("");
}
#endif

/// One piece of memory seen again and again through a large range, whose last page is its own.
class RepeatedMemory {
 public:
  explicit RepeatedMemory(std::size_t pieces) : pieces_(pieces) {
    const int file = memfd_create("repeated", 0);
    if (file < 0 || ftruncate(file, 2 * piece) != 0) {
      throw std::runtime_error("no memory");
    }
    void* const range = mmap(nullptr, bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data_ = static_cast<std::uint8_t*>(range);
    for (std::size_t i = 0; i < pieces; ++i) {
      mmap(data_ + i * piece, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
           i + 1 < pieces ? 0 : static_cast<off_t>(piece));
    }
    close(file);
  }
  ~RepeatedMemory() { munmap(data_, bytes()); }
  RepeatedMemory(const RepeatedMemory&) = delete;
  RepeatedMemory& operator=(const RepeatedMemory&) = delete;

  static constexpr std::size_t piece = std::size_t{1} << 20;
  std::size_t bytes() const { return pieces_ * piece; }
  std::uint8_t* data() const { return data_; }
  std::uint8_t* last_piece() const { return data_ + bytes() - piece; }

 private:
  std::size_t pieces_;
  std::uint8_t* data_;
};

TEST(ReduceContract, counts_past_two_to_the_31) {
  const std::size_t pieces = (std::size_t{1} << 31) / RepeatedMemory::piece + 1;
  const RepeatedMemory left(pieces), to(pieces);
  std::memset(left.data(), 3, RepeatedMemory::piece);
  std::memset(left.last_piece(), 5, RepeatedMemory::piece);
  const Term terms[] = {{left.data(), {0, 1}, false}, {left.data(), {1, 2}, false}};
  const std::size_t count = left.bytes() - 3;
  ASSERT_GT(count, std::size_t{1} << 31);
  collectives::reduce({.input = DType::u8, .output = DType::u8, .ranks = 2}, terms, to.data(),
                      count);
  EXPECT_EQ(to.data()[0], 6);
  EXPECT_EQ(to.data()[(std::size_t{1} << 31) - 1], 6);
  EXPECT_EQ(to.data()[count - 1], 10);
  EXPECT_EQ(to.data()[count], 0);
}

}  // namespace
}  // namespace sprat::collectives
