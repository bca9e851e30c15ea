// Generated text is a pure function, and words are counted as a reader would.
#include "train/sample.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "train/model/random.hpp"

namespace sprat::train {
namespace {

Vocabulary all_words(std::string_view text) {
  return words_of(TokenizedText({text.begin(), text.end()}), text.size());
}

TEST(Words, are_runs_of_letters_in_lower_case) {
  EXPECT_EQ(all_words("The hacker's  HACK, 42 times"),
            (Vocabulary{"the", "hacker", "s", "hack", "times"}));
}

TEST(Words, are_those_of_the_first_tokens_alone) {
  const std::string text(100'000, 'x');
  EXPECT_EQ(all_words(text), Vocabulary{text}) << "longer than what is looked at in one piece";
  const TokenizedText words(std::vector<std::uint8_t>{'a', ' ', 'b', 'c', ' ', 'd'});
  EXPECT_EQ(words_of(words, 3), (Vocabulary{"a", "b"}));
}

TEST(Words, cut_by_the_samples_ends_do_not_count) {
  const Vocabulary vocabulary = all_words("all known words here");
  const WordShare share = known_words("nown words, zzz All of her", vocabulary);
  EXPECT_EQ(share.words, 4);
  EXPECT_EQ(share.known, 2);
  EXPECT_EQ(share.share(), 0.5);
  EXPECT_EQ(known_words("", vocabulary).share(), 0.0);
}

TEST(Sample, is_shown_as_text_alone) {
  struct Case {
    std::string_view written, shown;
  };
  using namespace std::string_view_literals;
  const Case cases[] = {
      {"", ""},
      {"a line\n\tand \xc3\xbc, \xe2\x82\xac, \xf0\x9f\x98\x80", "a line\n\tand ü, €, 😀"},
      {"\x1b[2J\a\r\0z\x7f"sv, "�[2J���z�"},  // orders of terminals
      {"\xc2\x9b"
       "31m",
       "�31m"},  // one in two bytes
      {"\xc2\xa0", "\xc2\xa0"},
      {"\x80 \xff \xc0\xaf", "� � ��"},  // no lead bytes
      {"\xe2\x82", "�"},                 // cut at the end: one piece
      {"\xe2\x82z\xf0\x9fz", "�z�z"},
      {"\xe0\x80\x80", "���"},                                       // longer than need be
      {"\xed\xa0\x80", "���"},                                       // half a pair
      {"\xf4\x8f\xbf\xbf\xf4\x90\x80\x80", "\xf4\x8f\xbf\xbf����"},  // Unicode's end, beyond
  };
  for (const Case& one : cases) {
    EXPECT_EQ(printable(one.written), one.shown);
  }
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    all.push_back(static_cast<char>(byte));
    all += "\xe2\x82";
  }
  EXPECT_EQ(printable(printable(all)), printable(all));
  EXPECT_NO_THROW(static_cast<void>(nlohmann::json(printable(all)).dump())) << "no UTF-8";
}

TEST(Sample, repeats_by_seed_and_is_longer_than_the_context) {
  const GptShape shape{.layers = 1, .width = 16, .heads = 2, .context = 8};
  WholeParameters parameters(gpt_units(shape, 1));
  GptStages gpt(shape, {.max_tokens = 8}, open_gemm_backend(choose_gemm_backend()), parameters);
  const std::vector<std::int32_t> prompt = {'a', 'b'};
  const auto write = [&](std::uint64_t seed) {
    return write_sample(
        gpt, {.prompt = prompt, .tokens = 40, .temperature = 1, .seed = seed, .context = 8});
  };
  EXPECT_EQ(write(1).size(), 40u);
  EXPECT_EQ(write(1), write(1));
  EXPECT_NE(write(1), write(2));
}

TEST(Sample, has_no_token_that_only_the_model_knows) {
  const GptShape shape{.layers = 1, .width = 16, .heads = 2, .context = 8, .vocabulary = 64};
  WholeParameters parameters(gpt_units(shape, 1));
  GptStages gpt(shape, {.max_tokens = 8}, open_gemm_backend(choose_gemm_backend()), parameters);
  const std::vector<std::int32_t> prompt = {1};
  for (const std::int32_t token : write_sample(
           gpt,
           {.prompt = prompt, .tokens = 100, .vocabulary = 5, .temperature = 1, .context = 8})) {
    EXPECT_LT(token, 5);
  }
}

TEST(RandomStream, is_uniform_and_normal_as_far_as_moments_tell) {
  const RandomStream stream(4, "moments");
  constexpr int count = 100'000;
  double uniform = 0, mean = 0, square = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    uniform += stream.uniform(i) / count;
    mean += stream.normal(i) / count;
    square += std::pow(stream.normal(i), 2) / count;
  }
  // Five standard errors of each mean.
  EXPECT_NEAR(uniform, 0.5, 5 * std::sqrt(1.0 / 12 / count));
  EXPECT_NEAR(mean, 0, 5 * std::sqrt(1.0 / count));
  EXPECT_NEAR(square, 1, 5 * std::sqrt(2.0 / count));
}

TEST(RandomStream, has_the_same_bits_on_every_machine) {
  // As bench/fsdp/gpt_numpy.py computes them.
  const struct {
    std::uint64_t seed;
    const char* purpose;
    double first[3], last;
  } cases[] = {
      {1, "wte.weight", {-0x1.57c388p+0, 0x1.849a6p+0, 0x1.16f68p-4}, -0x1.0e4ccp-2},
      {7, "h.0.mlp.c_fc.weight", {-0x1.245e58p+0, -0x1.51184p-1, -0x1.366b1p+0}, 0x1.25e708p+0}};
  for (const auto& one : cases) {
    const RandomStream stream(one.seed, one.purpose);
    for (std::uint64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(stream.normal(i), one.first[i]) << one.purpose << ' ' << i;
    }
    EXPECT_EQ(stream.normal(1'000'000), one.last) << one.purpose;
  }
}

}  // namespace
}  // namespace sprat::train
