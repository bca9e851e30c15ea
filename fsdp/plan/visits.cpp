// The gather order: a set of places in the declared visits, advanced by each acquire.
#include "fsdp/plan/visits.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat {

std::vector<Visit> plain_visits(std::span<const int> forward, std::span<const int> backward,
                                int micro_steps) {
  std::vector<Visit> visits;
  for (int microbatch = 0; microbatch < micro_steps; ++microbatch) {
    for (const int unit : forward) {
      visits.push_back({unit, VisitPass::forward, microbatch});
    }
    for (const int unit : backward) {
      visits.push_back({unit, VisitPass::backward, microbatch});
    }
  }
  return visits;
}

namespace fsdp {
namespace {

constexpr int none = -1;

bool contains(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

void add(std::vector<int>& values, int value) {
  if (!contains(values, value)) {
    values.push_back(value);
  }
}

void fill_defaults(Visits& order) {
  if (order.step.empty()) {
    std::vector<int> forward(static_cast<std::size_t>(order.visited()));
    std::iota(forward.begin(), forward.end(), 0);
    const std::vector<int> backward(forward.rbegin(), forward.rend());
    order.step = plain_visits(forward, backward, order.micro_steps);
  }
  if (order.evaluation.empty()) {
    for (const Visit& visit : order.step) {
      if (visit.pass == VisitPass::forward && visit.microbatch == 0) {
        order.evaluation.push_back(visit.unit);
      }
    }
  }
  order.elements.resize(order.units.size(), 0);
  for (std::size_t unit = order.values_of.size(); unit < order.units.size(); ++unit) {
    order.values_of.push_back(static_cast<int>(unit));
  }
}

}  // namespace

std::vector<bool> last_backwards(const Visits& order) {
  // Micro-batches end in any order, and a backward may come in parts: the last one seen counts.
  std::map<std::pair<int, int>, std::size_t> last;  // by unit and micro-batch
  for (std::size_t at = 0; at < order.step.size(); ++at) {
    if (adds_gradient(order.step[at].pass)) {
      last[{order.step[at].unit, order.step[at].microbatch}] = at;
    }
  }
  for (int unit = 0; unit < order.visited(); ++unit) {
    for (int microbatch = 0; microbatch < order.micro_steps; ++microbatch) {
      require(last.count({unit, microbatch}) == 1, "no backward visits unit \"",
              order.units[static_cast<std::size_t>(unit)], "\" in micro-batch ", microbatch,
              "; every unit has a gradient in each, which is reduced after its last visit there");
    }
  }
  std::vector<bool> result(order.step.size(), false);
  for (const auto& [key, at] : last) {
    result[at] = true;
  }
  return result;
}

GatherSchedule::GatherSchedule(Visits order) : order_(std::move(order)) {
  const int units = order_.visited();
  require(units > 0, "a sharded model needs at least one unit");
  require(order_.ahead >= 0, "prefetch_units is ", order_.ahead, "; it is 0 or more");
  require(order_.micro_steps >= 1, "micro_steps is ", order_.micro_steps, "; it is 1 or more");
  fill_defaults(order_);
  for (const Visit& visit : order_.step) {
    require(visit.microbatch >= 0 && visit.microbatch < order_.micro_steps,
            "the order of visits names micro-batch ", visit.microbatch, "; micro-batches are 0 to ",
            order_.micro_steps - 1);
    path_.push_back(visit.unit);
    reads_.push_back(reads_values(visit.pass));
  }
  path_.insert(path_.end(), order_.evaluation.begin(), order_.evaluation.end());
  reads_.resize(path_.size(), true);
  for (const int unit : path_) {
    require(unit >= 0 && unit < units, "the order of visits names unit ", unit, "; units are 0 to ",
            units - 1);
  }
  held_.assign(order_.units.size(), 0);
  unread_ = used_ = held_;
  full_.assign(order_.units.size(), false);
  places_ = {none};
}

std::vector<int> GatherSchedule::restart() {
  std::fill(full_.begin(), full_.end(), false);
  std::fill(held_.begin(), held_.end(), 0);
  std::fill(unread_.begin(), unread_.end(), 0);
  std::fill(used_.begin(), used_.end(), 0);
  places_ = {none};
  return gather_missing(wanted(none));
}

VisitActions GatherSchedule::acquire(int unit) {
  std::vector<int> reached;
  for (const int choice : choices()) {
    if (path_[choice] == unit) {
      reached.push_back(choice);
    }
  }
  if (reached.empty()) {
    const bool known = unit >= 0 && unit < static_cast<int>(held_.size());
    require(false, "acquire(", unit, ") is out of the declared order: expected ", expected(),
            ", got ", known ? text("\"", order_.units[unit], "\"") : "no unit of this model");
  }
  places_ = std::move(reached);
  ++held_[unit];
  // As long as it may be an evaluation's, its values are there.
  if (std::ranges::none_of(places_, [&](int place) { return reads_[place]; })) {
    ++unread_[unit];
    return {};
  }
  ++used_[values_of(unit)];

  const std::vector<int> wanted = this->wanted(values_of(unit));
  VisitActions actions;
  for (int other = 0; other < static_cast<int>(full_.size()); ++other) {
    if (full_[other] && used_[other] == 0 && !contains(wanted, other)) {
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
  // A unit and those tied to it have one copy of the parameters, which goes with the last of them.
  const int values = values_of(unit);
  --held_[unit];
  if (unread_[unit] > 0) {
    --unread_[unit];  // if it was another visit's, that one's values go a little later
    return false;
  }
  if (--used_[values] > 0) {
    return false;
  }
  // What the next visit would gather again stays: the last units of forward are the first of
  // backward, and micro-batches of a pipeline may use the same few units in turn.
  const int next = next_unit();
  if (next != none && contains(wanted(next), values)) {
    return false;
  }
  full_[values] = false;
  return true;
}

bool GatherSchedule::between_passes() const {
  const bool held = std::any_of(held_.begin(), held_.end(), [](int count) { return count > 0; });
  return !held && contains(choices(), 0);
}

std::string GatherSchedule::expected() const {
  std::vector<int> units;
  for (const int choice : choices()) {
    add(units, path_[choice]);
  }
  std::string names;
  for (const int unit : units) {
    names += text(names.empty() ? "" : " or ", "\"", order_.units[unit], "\"");
  }
  return names;
}

std::vector<int> GatherSchedule::choices(int place) const {
  const int step = static_cast<int>(order_.step.size()), all = static_cast<int>(path_.size());
  if (place != none && place + 1 != step && place + 1 != all) {
    return {place + 1};
  }
  return step < all ? std::vector{0, step} : std::vector{0};  // a step or an evaluation begins
}

std::vector<int> GatherSchedule::choices() const {
  // A model of one unit may be almost anywhere in its visits: looked up, not searched for.
  std::vector<int> all;
  std::vector<bool> found(path_.size(), false);
  for (const int place : places_) {
    for (const int choice : choices(place)) {
      if (!found[choice]) {
        found[choice] = true;
        all.push_back(choice);
      }
    }
  }
  return all;
}

int GatherSchedule::next(int place) const {
  if (place + 1 == static_cast<int>(order_.step.size())) {
    return none;  // parameters change there
  }
  return place + 1 == static_cast<int>(path_.size()) ? 0 : place + 1;
}

int GatherSchedule::next_reader(int place) const {
  for (place = next(place); place != none && !reads_[place]; place = next(place)) {
  }
  return place;
}

int GatherSchedule::next_unit() const {
  const int place = next_reader(places_.front());
  return place == none ? none : values_of(path_[place]);
}

std::optional<Visit> GatherSchedule::visit() const {
  const int place = places_.front();
  const bool of_step = place != none && place < static_cast<int>(order_.step.size());
  return of_step ? std::optional(order_.step[static_cast<std::size_t>(place)]) : std::nullopt;
}

std::vector<int> GatherSchedule::upcoming() const {
  const int next = next_unit();
  std::vector<int> units = next == none ? std::vector<int>{} : wanted(next);
  std::erase_if(units, [&](int unit) { return full_[static_cast<std::size_t>(unit)]; });
  return units;
}

std::vector<int> GatherSchedule::wanted(int used) const {
  std::vector<int> units;
  std::size_t live = 0;
  for (std::size_t unit = 0; unit < used_.size(); ++unit) {
    const bool counts = used_[unit] > 0 || static_cast<int>(unit) == used;
    live += counts ? order_.elements[unit] : 0;
  }
  if (used != none) {
    units.push_back(used);
  }
  const std::size_t most = std::min(units.size() + static_cast<std::size_t>(order_.ahead),
                                    static_cast<std::size_t>(order_.visited()));
  for (int place = next_reader(places_.front()); place != none && units.size() < most;
       place = next_reader(place)) {
    const int unit = values_of(path_[place]);
    if (contains(units, unit)) {
      continue;
    }
    live += used_[unit] > 0 ? 0 : order_.elements[unit];
    if (live > order_.max_live) {
      break;
    }
    units.push_back(unit);
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

}  // namespace fsdp
}  // namespace sprat
