// What is done about each errno, for how long, and what people are told.
#include "io/reading/retries.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <set>

namespace sprat::io {
namespace {

using testing::HasSubstr;

TEST(Retries, follow_one_rule_for_each_error) {
  std::set<int> errors;
  for (const ErrorRule& rule : error_rules()) {
    EXPECT_TRUE(errors.insert(rule.error).second) << rule.error;
    EXPECT_EQ(rule_of(rule.error).remedy, rule.remedy);
    EXPECT_EQ(rule.advice.empty(), rule.remedy == Remedy::again)
        << "whoever is told of " << rule.error << " needs to know what to do";
  }
  for (const int error : {EIO, ETIMEDOUT, ENOTCONN, ESHUTDOWN, EREMOTEIO}) {
    EXPECT_EQ(rule_of(error).remedy, Remedy::reopen) << error;
    EXPECT_TRUE(rule_of(error).blames_target) << error;
  }
  EXPECT_EQ(rule_of(ESTALE).remedy, Remedy::reopen);
  EXPECT_FALSE(rule_of(ESTALE).blames_target) << "a stale file says nothing of its neighbours";
  EXPECT_EQ(rule_of(EISDIR).remedy, Remedy::give_up) << "of what nobody has thought";
}

TEST(Retries, wait_longer_each_time_between_half_of_a_step_and_all_of_it) {
  Moment step = std::chrono::milliseconds(100);
  for (std::uint32_t attempt = 1; attempt <= 100; ++attempt) {
    std::set<Moment> waits;
    for (std::uint64_t key = 0; key < 20; ++key) {
      const Moment wait = back_off(key, attempt);
      EXPECT_GE(wait, step / 2) << attempt;
      EXPECT_LE(wait, step) << attempt;
      EXPECT_EQ(wait, back_off(key, attempt)) << "it is a function of its arguments";
      waits.insert(wait);
    }
    EXPECT_GT(waits.size(), 15u) << "hosts that failed together come back together";
    step = std::min<Moment>(step * 5 / 4, std::chrono::seconds(10));
  }
}

TEST(Retries, last_as_long_as_a_server_takes_to_be_replaced) {
  EXPECT_EQ(retry_time("lustre"), std::chrono::minutes(10));
  EXPECT_EQ(retry_time("fsx-scratch"), std::chrono::seconds(5));
  EXPECT_EQ(retry_time("ext"), std::chrono::seconds(2));
  EXPECT_EQ(retry_time("something new"), std::chrono::minutes(1));
}

TEST(Retries, end_in_words_that_name_file_place_target_and_remedy) {
  ReadFailure failure{
      .request = {.extent = {.offset = 4096, .bytes = 8192}, .in_file_bytes = 8000, .target = 7},
      .offset = 5000,
      .error = EIO,
      .attempts = 12,
      .lasted = std::chrono::milliseconds(61'240)};
  EXPECT_EQ(describe(failure, "/data/a.tar"),
            "cannot read 7096 bytes at 5000 of /data/a.tar (storage target 7): Input/output error "
            "(errno 5), at 12 tries within 61.2 s; look at the storage server that has this "
            "target, and at the network to it");
  failure.error = ENODATA;
  failure.attempts = 1;
  EXPECT_THAT(describe(failure, "x"), HasSubstr("at 1 try; its data are neither on storage nor"));
  failure.error = 0;
  EXPECT_THAT(describe(failure, "x"), HasSubstr("the file ends there, but was longer when"));
}

TEST(Retries, name_a_read_that_does_not_return) {
  const HungRead hung{.request = {.extent = {.offset = 5, .bytes = 10}, .target = 3},
                      .lasts = std::chrono::seconds(31)};
  EXPECT_THAT(
      describe(hung, "/data/a.tar"),
      HasSubstr("a read of 10 bytes at 5 of /data/a.tar (storage target 3) has not returned "
                "for 31 s and cannot be taken back; look at"));
}

}  // namespace
}  // namespace sprat::io
