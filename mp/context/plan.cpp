#include "mp/context/plan.hpp"

#include "comm/base/check.hpp"
#include "mp/context/chunks.hpp"
#include "mp/context/plan_builder.hpp"

namespace sprat::mp::context {

bool is_way(std::string_view given) {
  return given == name(Way::p2p) || given == name(Way::all_gather);
}

Way way_named(std::string_view given) {
  for (const Way way : {Way::p2p, Way::all_gather}) {
    if (given == name(way)) {
      return way;
    }
  }
  throw Error(ErrorCode::invalid_argument,
              text("no way \"", given, "\" of moving keys and values (cp_comm_type); there are: ",
                   name(Way::p2p), " ", name(Way::all_gather)));
}

std::string_view name(Way way) {
  switch (way) {
    case Way::p2p:
      return "p2p";
    case Way::all_gather:
      return "all_gather";
  }
  return "";
}

PlanBuilder::PlanBuilder(int ranks, int rank) {
  plan.ranks = ranks;
  plan.rank = rank;
}

Started PlanBuilder::start(const Action& action) {
  plan.actions.push_back(action);
  return plan.actions.size() - 1;
}

void PlanBuilder::finish(Started& started) {
  if (started) {
    plan.actions.push_back({.op = Op::finish, .started = *started});
    started.reset();
  }
}

void PlanBuilder::attend(int query_chunk, const Action& keys) {
  Action action = keys;
  action.op = Op::attend;
  action.query_chunk = query_chunk;
  plan.actions.push_back(action);
}

void PlanBuilder::place_halves() {
  for (int half = 0; half < 2; ++half) {
    const int chunk = chunks_of(plan.rank, plan.ranks)[std::size_t(half)];
    plan.own_keys[half] = plan.own_gradients[half] = gathered_place(chunk, plan.ranks);
  }
  plan.key_places = chunk_count(plan.ranks);
}

int gathered_place(int chunk, int ranks) {
  return (chunk < ranks ? 0 : ranks) + owner_of(chunk, ranks);
}

Traffic received(const Plan& plan) {
  Traffic traffic;
  for (const Action& action : plan.actions) {
    const bool collective = action.op == Op::gather || action.op == Op::reduce_scatter;
    if (collective || action.op == Op::receive) {
      auto& count = action.content == Content::keys ? traffic.keys : traffic.gradients;
      count += collective ? std::size_t(plan.ranks - 1) : 1;
    }
  }
  return traffic;
}

}  // namespace sprat::mp::context
