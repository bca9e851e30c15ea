// What a failure reaches, and what not.
#include "comm/context/failure_scope.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sprat::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Error loss_of_two(ErrorCode::lost_peer, "lost rank 2", 2);

struct TestScopes {
  static const char* first_of(const FailureScope& scope) {
    return scope.first() == nullptr ? "none" : scope.first()->what();
  }
  std::unique_ptr<WaitPolicy> wait_policy = real_wait_policy();
  FailureScopes all{*wait_policy};

  std::shared_ptr<const FailureScope> open(std::uint64_t communicator, std::uint64_t domain,
                                           std::vector<int> ranks) {
    return all.open({.communicator = communicator,
                     .domain = domain,
                     .name = "some",
                     .world_ranks = std::move(ranks)});
  }
};

TEST(FailureScopes, a_lost_rank_fails_those_that_it_was_in_and_what_fails_with_them) {
  TestScopes scopes;
  const auto with = scopes.open(1, 1, {0, 1, 2}), tied = scopes.open(2, 1, {0, 1});
  const auto without = scopes.open(3, 3, {0, 1});
  EXPECT_THAT(scopes.all.fail_those_with(2, loss_of_two), ElementsAre(1));
  EXPECT_NE(with->first(), nullptr);
  EXPECT_NE(tied->first(), nullptr);
  EXPECT_EQ(without->first(), nullptr);
  EXPECT_THAT(scopes.all.fail_those_with(2, loss_of_two), IsEmpty());  // it was said before
}

TEST(FailureScopes, the_first_failure_stays) {
  TestScopes scopes;
  const auto scope = scopes.open(1, 1, {0, 1});
  EXPECT_TRUE(scopes.all.fail(1, Error(ErrorCode::timeout, "first", 1)));
  EXPECT_FALSE(scopes.all.fail(1, Error(ErrorCode::aborted, "second", 0)));
  EXPECT_TRUE(scopes.all.fail_all(Error(ErrorCode::aborted, "the job", 0)));
  EXPECT_FALSE(scopes.all.fail_all(Error(ErrorCode::aborted, "again", 0)));
  EXPECT_STREQ(scopes.first_of(*scope), "first");
}

TEST(FailureScopes, those_to_come_have_failed_with_what_they_belong_to) {
  TestScopes scopes;
  EXPECT_FALSE(scopes.all.fail(4, Error(ErrorCode::aborted, "early", 1)));  // none is here yet
  EXPECT_TRUE(scopes.all.has_failed(4));
  const auto late = scopes.open(4, 4, {0, 1});
  EXPECT_STREQ(scopes.first_of(*late), "early");
  EXPECT_EQ(scopes.open(5, 5, {0, 1})->first(), nullptr);
}

TEST(FailureScopes, know_the_domain_of_a_communicator) {
  TestScopes scopes;
  const auto scope = scopes.open(2, 1, {0, 1});
  EXPECT_EQ(scopes.all.domain_of(2), 1u);
  EXPECT_EQ(scopes.all.domain_of(77), 77u);
}

TEST(FailureScopes, spend_the_numbers_of_those_that_failed_here) {
  TestScopes scopes;
  const auto scope = scopes.open(0x10005, 0x10005, {0, 1});
  EXPECT_FALSE(scopes.all.is_spent(5, 15));
  scopes.all.fail(0x10005, loss_of_two);
  scopes.all.fail(6, loss_of_two);  // of other ranks: nothing of it comes here
  EXPECT_TRUE(scopes.all.is_spent(5, 15));
  EXPECT_TRUE(scopes.all.is_spent(0x8005, 15));
  EXPECT_FALSE(scopes.all.is_spent(6, 15));
  EXPECT_EQ(scopes.all.spent(), 1u);
}

}  // namespace
}  // namespace sprat::comm
