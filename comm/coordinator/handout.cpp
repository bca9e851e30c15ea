#include "comm/coordinator/handout.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sprat::comm {

std::vector<FrameTo> Handout::give(Parts parts, std::vector<int> to, std::size_t bytes, Time now) {
  // Every rank has given a part since the last time, so all have what that gave.
  groups_.clear();
  directly_.clear();
  untold_ = 0;
  if (bytes >= least_bytes) {
    to = form_groups(to);
  }
  std::vector<FrameTo> said;
  if (!groups_.empty()) {
    untold_ = groups_.size();
    told_by_ = now + patience;
    parts_ = parts;
    PartsPlace ask;
    ask.ordinal = parts.ordinal;
    std::vector<int> leaders;
    for (const auto& entry : groups_) {
      leaders.push_back(entry.second.leader);
    }
    // Before the parts: from the next moment on a leader may be through with them.
    said.push_back({std::move(leaders), ask});
  }
  said.push_back({std::move(to), std::move(parts)});
  return said;
}

/// Returns who gets the parts from the coordinator: leaders, and who is alone on its host.
std::vector<int> Handout::form_groups(const std::vector<int>& ranks) {
  std::map<std::uint64_t, int> leaders;
  std::vector<int> directly;
  for (const int rank : ranks) {
    const std::uint64_t host = hosts_[static_cast<std::size_t>(rank)];
    if (host == 0 || unable_[static_cast<std::size_t>(rank)]) {
      directly.push_back(rank);
      continue;
    }
    const auto [leader, leads] = leaders.try_emplace(host, rank);
    if (leads) {
      directly.push_back(rank);
      continue;
    }
    Group& group = groups_[host];
    group.leader = leader->second;
    group.followers.push_back(rank);
  }
  return directly;
}

std::vector<FrameTo> Handout::placed(int rank, const PartsPlace& place, Time now) {
  const auto group = group_of(rank);
  if (group == groups_.end() || group->second.leader != rank || group->second.told ||
      place.ordinal != parts_.ordinal) {
    return {{{rank}, PartsTaken{place.ordinal}}};  // too late: the others have got them
  }
  if (place.descriptor < 0) {
    give_directly(group, now + lull);
    return {};
  }
  group->second.told = true;
  --untold_;
  return {{group->second.followers, place}};
}

std::vector<FrameTo> Handout::taken(int rank, const PartsTaken& taken, Time now) {
  const auto group = group_of(rank);
  if (group == groups_.end() || !group->second.told || taken.ordinal != parts_.ordinal ||
      !std::ranges::binary_search(group->second.followers, rank)) {
    return {};
  }
  if (taken.read == 0) {
    unable_[static_cast<std::size_t>(rank)] = true;
    give_directly({rank}, now + lull);
  }
  return strike_out(group, rank);
}

std::vector<FrameTo> Handout::gone(int rank) {
  const auto group = group_of(rank);
  if (group == groups_.end()) {
    return {};
  }
  if (group->second.leader != rank) {
    return strike_out(group, rank);
  }
  // Of those that were told, each finds out whether it can still read there.
  if (!group->second.told) {
    give_directly(group, Time());
  }
  return {};
}

/// The leader may let go of the memory once nobody needs it.
std::vector<FrameTo> Handout::strike_out(Groups::iterator group, int follower) {
  std::erase(group->second.followers, follower);
  if (!group->second.followers.empty()) {
    return {};
  }
  std::vector<FrameTo> said = {{{group->second.leader}, PartsTaken{parts_.ordinal}}};
  if (!group->second.told) {
    --untold_;
  }
  groups_.erase(group);
  forget_if_done();
  return said;
}

void Handout::give_directly(Groups::iterator untold, Time when) {
  give_directly(untold->second.followers, when);
  --untold_;
  groups_.erase(untold);
}

void Handout::give_directly(const std::vector<int>& ranks, Time when) {
  directly_at_ = directly_.empty() ? when : std::min(directly_at_, when);
  directly_.insert(directly_.end(), ranks.begin(), ranks.end());
}

std::vector<FrameTo> Handout::tick(Time now) {
  for (auto group = groups_.begin(); untold_ > 0 && now >= told_by_ && group != groups_.end();) {
    const auto this_one = group++;
    if (!this_one->second.told) {
      give_directly(this_one, now);
    }
  }
  if (directly_.empty() || now < directly_at_) {
    return {};
  }
  std::ranges::sort(directly_);
  std::vector<FrameTo> said = {{std::exchange(directly_, {}), parts_}};
  forget_if_done();
  return said;
}

std::vector<FrameTo> Handout::rest() {
  for (const auto& entry : groups_) {
    give_directly(entry.second.followers, Time());
  }
  groups_.clear();
  untold_ = 0;
  return tick(Time::max());
}

std::optional<Handout::Time> Handout::deadline() const {
  std::optional<Time> first;
  if (untold_ > 0) {
    first = told_by_;
  }
  if (!directly_.empty() && (!first || directly_at_ < *first)) {
    first = directly_at_;
  }
  return first;
}

void Handout::forget_if_done() {
  if (groups_.empty() && directly_.empty()) {
    parts_ = {};
  }
}

}  // namespace sprat::comm
