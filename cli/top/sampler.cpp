#include "cli/top/sampler.hpp"

#include <algorithm>
#include <chrono>
#include <set>

#include "cli/top/processes.hpp"
#include "sprat/error.hpp"

namespace sprat::cli {

void HostSampler::find() {
  std::map<pid_t, collectives::ShownRanks> found;
  unreadable_.clear();
  for (const pid_t pid : collectives::processes_with_flight_records()) {
    try {
      // Opened anew: a process may have joined another job since.
      found.emplace(pid, collectives::ShownRanks(pid));
    } catch (const Error&) {  // it has ended meanwhile
    }
  }
  shown_.swap(found);
  std::erase_if(counted_,
                [&](const auto& one) { return !shown_.contains(std::get<0>(one.first)); });
}

HostSampler::RankKey HostSampler::key_of(const RankLook& look) {
  return {look.pid, look.record.job, look.record.rank};
}

std::vector<RankLook> HostSampler::read() {
  std::vector<RankLook> ranks;
  for (const auto& [pid, pages] : shown_) {
    try {
      for (collectives::FlightRecord& record : pages.read()) {
        ranks.push_back({.pid = pid, .record = std::move(record)});
      }
    } catch (const Error& error) {  // of another version, which does not change
      if (std::ranges::find(unreadable_, error.what()) == unreadable_.end()) {
        unreadable_.emplace_back(error.what());
      }
    }
  }
  return ranks;
}

void HostSampler::sample() {
  const std::vector<RankLook> ranks = read();
  for (const RankLook& one : ranks) {
    ++counted_[key_of(one)].looks;
  }
  for (const std::size_t place : late_ranks(ranks)) {
    ++counted_[key_of(ranks[place])].late;
  }
}

HostLook HostSampler::look() {
  HostLook look{.taken = 0, .ranks = read(), .processes = {}, .gpus = {}, .unreadable = {}};
  look.taken =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  std::set<pid_t> pids;
  for (RankLook& one : look.ranks) {
    const Counted& counted = counted_[key_of(one)];
    one.looks = counted.looks;
    one.late = counted.late;
    pids.insert(one.pid);
  }
  std::erase_if(look.ranks, [&](const RankLook& one) {
    if (!look.processes.contains(one.pid)) {
      const std::optional<ProcessUse> use = process_use(one.pid);
      if (!use) {
        return true;  // it has ended, and only its pages are left
      }
      look.processes.emplace(one.pid, *use);
    }
    return false;
  });
  std::ranges::sort(look.ranks, {}, [](const RankLook& one) {
    return std::tuple(one.record.job, one.record.rank, one.pid);
  });
  look.gpus = gpus_.of({pids.begin(), pids.end()});
  look.unreadable = unreadable_;
  return look;
}

}  // namespace sprat::cli
