// Which states of a unit may follow each other.
#include "fsdp/unit_states.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "sprat/error.hpp"

namespace sprat::fsdp {
namespace {

constexpr std::array parameter_states = {ParameterState::kept, ParameterState::refreshing,
                                         ParameterState::gathering, ParameterState::full};
constexpr std::array gradient_states = {
    GradientState::none,         GradientState::written,         GradientState::first_sum,
    GradientState::between_sums, GradientState::sum_of_replicas, GradientState::summed};

/// Moves that begin at `from`, as names.
template <class States, class Enum>
std::string moves_from(const States& states, Enum from) {
  std::string moves;
  for (const Enum to : states) {
    moves += may_follow(from, to) ? std::string(" ") + name(to) : "";
  }
  return moves;
}

TEST(UnitStates, parameters_are_gathered_for_use_and_refreshed_after_an_update) {
  EXPECT_EQ(moves_from(parameter_states, ParameterState::kept), " refreshing gathering");
  EXPECT_EQ(moves_from(parameter_states, ParameterState::refreshing), " kept");
  EXPECT_EQ(moves_from(parameter_states, ParameterState::gathering), " full");
  EXPECT_EQ(moves_from(parameter_states, ParameterState::full), " kept");
}

TEST(UnitStates, a_gradient_is_written_summed_and_read_once_a_step) {
  EXPECT_EQ(moves_from(gradient_states, GradientState::none), " written");
  EXPECT_EQ(moves_from(gradient_states, GradientState::written), " first_sum");
  EXPECT_EQ(moves_from(gradient_states, GradientState::first_sum),
            " between_sums sum_of_replicas summed");
  EXPECT_EQ(moves_from(gradient_states, GradientState::between_sums), " written");
  EXPECT_EQ(moves_from(gradient_states, GradientState::sum_of_replicas), " summed");
  EXPECT_EQ(moves_from(gradient_states, GradientState::summed), " none");
}

TEST(UnitStates, a_move_that_is_not_there_is_refused_by_name) {
  State<ParameterState> state;
  state.move_to(ParameterState::gathering);
  try {
    state.move_to(ParameterState::refreshing);
    FAIL() << "a shard was overwritten while others gathered it";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a unit that is gathering cannot become refreshing");
  }
  EXPECT_TRUE(state.is(ParameterState::gathering));
}

}  // namespace
}  // namespace sprat::fsdp
