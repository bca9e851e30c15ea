#include "checkpoint/whole_model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "checkpoint/agreement.hpp"
#include "checkpoint/plan/names.hpp"
#include "comm/base/check.hpp"
#include "comm/base/strict_json.hpp"
#include "fsdp/plan/layout.hpp"

namespace sprat::fsdp {
namespace {

using Json = nlohmann::json;
using Bytes = std::vector<std::uint8_t>;

constexpr Options blocking{.timeout = {}, .blocking = true};
/// A model of a million parameters has some 50 MiB. Every rank holds all descriptions.
constexpr std::int64_t longest_description = std::int64_t{1} << 28;

/// What each rank tells the others first. Plain numbers, for it travels by all_gather.
struct Seat {
  std::int64_t leader = 0;             // the first rank of its group, as `world` numbers them
  std::int64_t group_size = 0;         // of ranks
  std::int64_t description_bytes = 0;  // of a leader; 0 of the others
};

/// The ranks of `group` as `world` numbers them.
std::vector<int> members_of(Communicator& world, Communicator& group) {
  const int mine = world.rank();
  std::vector<int> members(static_cast<std::size_t>(group.size()));
  group.all_gather(elements(std::span(&mine, 1)), elements(members), blocking).wait();
  return members;
}

std::vector<Seat> exchange_seats(Communicator& world, const Seat& mine) {
  constexpr std::size_t words = sizeof(Seat) / sizeof(std::int64_t);
  std::vector<Seat> seats(static_cast<std::size_t>(world.size()));
  world
      .all_gather({&mine, words, DType::i64}, {seats.data(), words * seats.size(), DType::i64},
                  blocking)
      .wait();
  return seats;
}

void check_seats(Communicator& world, const std::vector<Seat>& seats) {
  for (std::size_t rank = 0; rank < seats.size(); ++rank) {
    const Seat& seat = seats[rank];
    const int named = rank_in_job(world, static_cast<int>(rank));
    const auto here = std::ranges::count(seats, seat.leader, &Seat::leader);
    require(here == seat.group_size, "rank ", named, " has its part of the model with ",
            seat.group_size - 1, " other ranks, of which ", here - 1, " are among the ",
            seats.size(),
            " of the job; every rank of a part takes part in a checkpoint, and in no "
            "other part");
    require(seat.description_bytes <= longest_description, "rank ", named,
            "'s part of the model takes ", seat.description_bytes, " bytes to describe, more than ",
            longest_description, "; give parameters shorter names, or fewer of them");
  }
}

/// The leaders' descriptions, by rank; empty of the others.
std::vector<Bytes> exchange_descriptions(Communicator& world, const std::vector<Seat>& seats,
                                         const Bytes& mine) {
  std::vector<std::size_t> counts;
  std::size_t total = 0;
  for (const Seat& seat : seats) {
    counts.push_back(static_cast<std::size_t>(seat.description_bytes));
    total += counts.back();
  }
  Bytes all;
  agree(world, outcome_of([&] { all.resize(total); }));  // memory may be short on one rank alone
  world.all_gatherv(elements(mine), elements(all), counts, blocking).wait();
  std::vector<Bytes> descriptions;
  auto next = all.begin();
  for (const std::size_t count : counts) {
    const auto end = next + static_cast<std::ptrdiff_t>(count);
    descriptions.emplace_back(next, end);
    next = end;
  }
  return descriptions;
}

std::string listed(const std::vector<std::string>& states) {
  return fmt::format("{}", fmt::join(states.begin() + 1, states.end(), ", "));
}

/// Units with the same holders name one list of them: it has an entry for every rank.
std::size_t index_of(const std::vector<int>& holders, std::vector<std::vector<int>>& lists) {
  const auto found = std::ranges::find(lists, holders);
  if (found != lists.end()) {
    return static_cast<std::size_t>(found - lists.begin());
  }
  lists.push_back(holders);
  return lists.size() - 1;
}

Json description_of(const StoredUnit& unit, std::vector<std::vector<int>>& lists) {
  Json parameters = Json::array();
  for (std::size_t index = 0; index < unit.spec->parameters.size(); ++index) {
    const ParameterSpec& parameter = unit.spec->parameters[index];
    const FlatItem& item = unit.layout.items[index];
    Json about = {parameter.name, parameter.shape, parameter.tied, item.offset, item.count};
    if (parameter.box) {
      about.push_back(parameter.box->offset);
      about.push_back(parameter.box->extent);
    }
    parameters.push_back(std::move(about));
  }
  return {{"name", unit.spec->name},
          {"parts", unit.parts},
          {"holders", index_of(unit.holders, lists)},
          {"padded", unit.layout.padded},
          {"parameters", std::move(parameters)}};
}

/// A unit that this rank holds no part of, without its holders.
StoredUnit unit_from(const Json& json, std::deque<UnitSpec>& specs) {
  UnitSpec& spec = specs.emplace_back();
  spec.name = json.at("name").get<std::string>();
  StoredUnit unit{.spec = &spec,
                  .layout = {},
                  .parts = whole_number<int>(json.at("parts")),
                  .part = -1,
                  .copy = -1,
                  .holders = {},
                  .values = {}};
  unit.layout.padded = whole_number<std::size_t>(json.at("padded"));
  for (const Json& parameter : json.at("parameters")) {
    spec.parameters.push_back({.name = parameter.at(0).get<std::string>(),
                               .shape = whole_numbers<std::int64_t>(parameter.at(1)),
                               .initial = {},
                               .tied = parameter.at(2).get<bool>()});
    if (parameter.size() > 5) {
      spec.parameters.back().box = Box{.offset = whole_numbers<std::int64_t>(parameter.at(5)),
                                       .extent = whole_numbers<std::int64_t>(parameter.at(6))};
    }
    unit.layout.items.push_back({.offset = whole_number<std::size_t>(parameter.at(3)),
                                 .count = whole_number<std::size_t>(parameter.at(4))});
    unit.layout.count += unit.layout.items.back().count;
  }
  return unit;
}

std::vector<std::string> unit_names(const ModelState& model) {
  std::vector<std::string> names;
  for (const StoredUnit& unit : model.units) {
    names.push_back(unit.spec->name);
  }
  return names;
}

bool is_cut(const ModelState& model) {
  return std::ranges::any_of(model.units, [](const StoredUnit& unit) {
    return std::ranges::any_of(unit.spec->parameters,
                               [](const ParameterSpec& spec) { return spec.box.has_value(); });
  });
}

/// Ranks that cut the tensors of a stage among them have units of the same names.
int distinct(const std::vector<std::vector<std::string>>& groups) {
  return static_cast<int>(std::set(groups.begin(), groups.end()).size());
}

}  // namespace

Bytes description_of(const ModelState& part) {
  std::vector<std::vector<int>> lists;
  Json units = Json::array();
  for (const StoredUnit& unit : part.units) {
    units.push_back(description_of(unit, lists));
  }
  // Not as text: that would have to be UTF-8, and names that are not are refused by name later.
  return Json::to_msgpack(
      {{"states", part.states}, {"holders", std::move(lists)}, {"units", std::move(units)}});
}

ModelState described_model(const Bytes& description, std::deque<UnitSpec>& specs) {
  const Json json = Json::from_msgpack(description);
  const auto lists = json.at("holders").get<std::vector<std::vector<int>>>();
  ModelState model{.states = json.at("states").get<std::vector<std::string>>(), .units = {}};
  for (const Json& of_unit : json.at("units")) {
    StoredUnit& unit = model.units.emplace_back(unit_from(of_unit, specs));
    unit.holders = lists.at(whole_number<std::size_t>(of_unit.at("holders")));
    unit.copies = static_cast<int>(unit.holders.size()) / unit.parts;
  }
  return model;
}

WholeModel::WholeModel(Communicator& world, Communicator& group, ModelState part) {
  const std::vector<int> members = members_of(world, group);
  for (StoredUnit& unit : part.units) {
    for (int& holder : unit.holders) {
      holder = members[static_cast<std::size_t>(holder)];
    }
  }
  const bool leads = group.rank() == 0;
  const Bytes mine = leads ? description_of(part) : Bytes();
  const std::vector<Seat> seats =
      exchange_seats(world, {.leader = members[0],
                             .group_size = group.size(),
                             .description_bytes = static_cast<std::int64_t>(mine.size())});
  check_seats(world, seats);
  const std::vector<Bytes> descriptions = exchange_descriptions(world, seats, mine);
  std::vector<std::vector<std::string>> groups;  // the units of each
  for (std::size_t rank = 0; rank < descriptions.size(); ++rank) {
    if (descriptions[rank].empty()) {
      continue;
    }
    const bool own = static_cast<int>(rank) == members[0];
    ModelState next = own ? std::exchange(part, {}) : described_model(descriptions[rank], specs_);
    if (groups.empty()) {
      state_.states = next.states;
    }
    groups.push_back(unit_names(next));
    require(next.states == state_.states, "rank ", rank_in_job(world, static_cast<int>(rank)),
            "'s optimizer keeps (", listed(next.states), ") of its part of the model, and rank ",
            rank_in_job(world, 0), "'s (", listed(state_.states),
            "); one checkpoint takes one optimizer");
    std::ranges::move(next.units, std::back_inserter(state_.units));
  }
  check_names(state_);
  const auto all = static_cast<int>(groups.size());
  stages_ = is_cut(state_) ? distinct(groups) : all;
  tensor_parts_ = all / stages_;
}

}  // namespace sprat::fsdp
