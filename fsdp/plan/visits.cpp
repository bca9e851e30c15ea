// The gather order: a set of positions in the declared visits, advanced by each acquire.
#include "fsdp/plan/visits.hpp"

#include <algorithm>

#include "comm/base/check.hpp"

namespace sprat::fsdp {
namespace {

bool contains(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

void add(std::vector<int>& values, int value) {
  if (!contains(values, value)) {
    values.push_back(value);
  }
}

}  // namespace

GatherSchedule::GatherSchedule(Visits order) : order_(std::move(order)) {
  const int units = order_.visited();
  require(units > 0, "a sharded model needs at least one unit");
  require(order_.ahead >= 0, "prefetch_units is ", order_.ahead, "; it is 0 or more");
  if (order_.forward.empty()) {
    for (int unit = 0; unit < units; ++unit) {
      order_.forward.push_back(unit);
    }
  }
  if (order_.backward.empty()) {
    order_.backward.assign(order_.forward.rbegin(), order_.forward.rend());
  }
  require(order_.micro_steps >= 1, "micro_steps is ", order_.micro_steps, "; it is 1 or more");
  for (int micro_step = 0; micro_step < order_.micro_steps; ++micro_step) {
    visits_.insert(visits_.end(), order_.forward.begin(), order_.forward.end());
    visits_.insert(visits_.end(), order_.backward.begin(), order_.backward.end());
  }
  order_.elements.resize(order_.units.size(), 0);
  for (const int unit : visits_) {
    require(unit >= 0 && unit < units, "the order of visits names unit ", unit, "; units are 0 to ",
            units - 1);
  }
  held_.assign(order_.units.size(), 0);
  full_.assign(order_.units.size(), false);
  positions_ = {0};
}

std::vector<int> GatherSchedule::restart() {
  std::fill(full_.begin(), full_.end(), false);
  std::fill(held_.begin(), held_.end(), 0);
  positions_ = {0};
  return gather_missing(wanted(-1));
}

VisitActions GatherSchedule::acquire(int unit) {
  std::vector<int> next;
  for (const int choice : choices()) {
    if (visits_[choice] == unit) {
      add(next, choice + 1);
    }
  }
  if (next.empty()) {
    const bool known = unit >= 0 && unit < static_cast<int>(held_.size());
    require(false, "acquire(", unit, ") is out of the declared order: expected ", expected(),
            ", got ", known ? text("\"", order_.units[unit], "\"") : "no unit of this model");
  }
  positions_ = std::move(next);
  ++held_[unit];

  const std::vector<int> wanted = this->wanted(unit);
  VisitActions actions;
  for (int other = 0; other < static_cast<int>(full_.size()); ++other) {
    if (full_[other] && held_[other] == 0 && !contains(wanted, other)) {
      actions.drop.push_back(other);
      full_[other] = false;
    }
  }
  actions.gather = gather_missing(wanted);
  return actions;
}

bool GatherSchedule::release(int unit) {
  const bool known = unit >= 0 && unit < static_cast<int>(held_.size());
  require(known && held_[unit] > 0, "release(", unit, ") of ",
          known ? text("unit \"", order_.units[unit], "\", which is not acquired")
                : text("no unit of this model"));
  if (--held_[unit] > 0) {
    return false;
  }
  // What the next visit uses stays even without prefetching: the last unit's backward comes next.
  if (contains(window(std::max(1, order_.ahead)), unit)) {
    return false;
  }
  full_[unit] = false;
  return true;
}

bool GatherSchedule::between_passes() const {
  const bool held = std::any_of(held_.begin(), held_.end(), [](int count) { return count > 0; });
  return !held && contains(choices(), 0);
}

std::string GatherSchedule::expected() const {
  std::vector<int> units;
  for (const int choice : choices()) {
    add(units, visits_[choice]);
  }
  std::string names;
  for (const int unit : units) {
    names += text(names.empty() ? "" : " or ", "\"", order_.units[unit], "\"");
  }
  return names;
}

std::vector<int> GatherSchedule::choices(int position) const {
  if (position == static_cast<int>(visits_.size())) {
    return {0};
  }
  if (position == static_cast<int>(order_.forward.size())) {
    return {position, 0};  // training goes on backward, evaluation starts over
  }
  return {position};
}

std::vector<int> GatherSchedule::choices() const {
  std::vector<int> all;
  for (const int position : positions_) {
    for (const int choice : choices(position)) {
      add(all, choice);
    }
  }
  return all;
}

std::vector<int> GatherSchedule::window(int count) const {
  std::vector<int> units;
  const int last = std::min(positions_.front() + count, static_cast<int>(visits_.size()));
  for (int position = positions_.front(); position < last; ++position) {
    add(units, visits_[position]);
  }
  return units;
}

std::vector<int> GatherSchedule::upcoming() const {
  std::vector<int> units = window(order_.ahead + 1);
  std::erase_if(units, [&](int unit) { return full_[static_cast<std::size_t>(unit)]; });
  return units;
}

std::vector<int> GatherSchedule::wanted(int visited) const {
  std::vector<int> units;
  if (visited >= 0) {
    units.push_back(visited);
  }
  std::size_t live = 0;
  for (std::size_t unit = 0; unit < held_.size(); ++unit) {
    live += held_[unit] > 0 ? order_.elements[unit] : 0;
  }
  for (const int unit : window(order_.ahead)) {
    const bool counted = held_[static_cast<std::size_t>(unit)] > 0;
    live += counted ? 0 : order_.elements[static_cast<std::size_t>(unit)];
    if (live > order_.max_live) {
      break;
    }
    add(units, unit);
  }
  return units;
}

std::vector<int> GatherSchedule::gather_missing(const std::vector<int>& units) {
  std::vector<int> gather;
  for (const int unit : units) {
    if (!full_[unit]) {
      full_[unit] = true;
      gather.push_back(unit);
    }
  }
  return gather;
}

}  // namespace sprat::fsdp
