#include "tests/system/io_simulation/storage.hpp"

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <utility>

namespace sprat::io_simulation {
namespace {

/// Bytes and seconds are doubles; what is nearer than this is there.
constexpr double tiny_bytes = 0.5, tiny_seconds = 1e-12;

double share_of(Random& random) { return static_cast<double>(random.below(1u << 30)) / (1u << 30); }

}  // namespace

std::vector<double> fair_shares(const std::vector<double>& wants, double limit) {
  std::vector<double> shares = wants;
  if (std::accumulate(wants.begin(), wants.end(), 0.0) <= limit) {
    return shares;
  }
  std::vector<std::size_t> order(wants.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t one) { return wants[one]; });
  double left = limit;
  for (std::size_t place = 0; place < order.size(); ++place) {
    const double equal = left / static_cast<double>(order.size() - place);
    shares[order[place]] = std::min(wants[order[place]], equal);
    left -= shares[order[place]];
  }
  return shares;
}

Storage::Storage(StorageModel model, std::vector<StoredFile> files, std::vector<Trouble> troubles,
                 std::uint64_t seed)
    : model_(std::move(model)),
      files_(std::move(files)),
      troubles_(std::move(troubles)),
      random_(seed),
      open_(files_.size()),
      restored_files_(files_.size()) {
  for (const TargetModel& target : model_.targets) {
    credits_.push_back(target.credit_bytes);
  }
}

/// The product of all that is wrong in this way now; 1 if nothing is.
double Storage::factor(Trouble::Kind kind) const {
  double product = 1;
  for (const Trouble& trouble : troubles_) {
    if (trouble.kind == kind && trouble.at(now_)) {
      product *= trouble.factor;
    }
  }
  return product;
}

/// One server answers opens one after the other.
double Storage::opened_at(std::uint32_t file, bool anew) {
  if (open_[file] && !anew) {
    return std::max(now_, opened_[file]);
  }
  open_[file] = true;
  const double each = 1 / (model_.opens_per_second * factor(Trouble::Kind::metadata));
  metadata_free_ = std::max(metadata_free_, now_) + each;
  const double there = metadata_free_ + model_.open_latency_s;
  opens_.push_back({.took_s = there - now_});
  opened_[file] = there;
  return there;
}

void Storage::start(const SimulatedRead& read) {
  const std::uint32_t file = read.extent.file;
  const TargetModel& target = model_.targets.at(static_cast<std::size_t>(read.target));
  Served served{.read = read, .begun = now_};
  served.ready =
      opened_at(file, read.reopen) + target.latency_s * (1 + target.jitter * share_of(random_));
  if (files_[file].restore_s > 0 && !restored_files_[file]) {
    const auto there = restoring_.try_emplace(file, now_ + files_[file].restore_s).first->second;
    served.ready = std::max(served.ready, there);
    served.restores = true;
  }
  const std::uint64_t end = std::min(read.extent.offset + read.extent.bytes, files_[file].bytes);
  served.brings = end - std::min(end, read.extent.offset);
  decide(served);
  served.left = served.error == 0 ? static_cast<double>(served.brings) : 0;
  served_.push_back(served);
  flow_.reset();
}

void Storage::decide(Served& served) {
  for (const Trouble& trouble : troubles_) {
    if (!trouble.at(now_)) {
      continue;
    }
    const bool here = trouble.target == served.read.target;
    const bool hit = share_of(random_) < trouble.factor;
    switch (trouble.kind) {
      case Trouble::Kind::fails:
        served.error = here ? trouble.error : served.error;
        break;
      case Trouble::Kind::hangs:
        served.ready = here ? std::max(served.ready, trouble.until_s) : served.ready;
        break;
      case Trouble::Kind::stale:
        if (trouble.file == served.read.extent.file && opened_[trouble.file] < trouble.from_s) {
          served.error = ESTALE;
        }
        break;
      case Trouble::Kind::short_reads:
        if (hit && served.brings > 1) {
          served.brings = 1 + random_.below(served.brings - 1);
          served.cut = true;
        }
        break;
      case Trouble::Kind::flips:
        served.flipped = served.flipped || hit;
        break;
      case Trouble::Kind::slow:
      case Trouble::Kind::metadata:
      case Trouble::Kind::decoding:
        break;
    }
  }
}

double Storage::capacity(std::size_t target) const {
  const TargetModel& model = model_.targets[target];
  double rate = credits_[target] > tiny_bytes ? model.burst : model.base;
  for (const Trouble& trouble : troubles_) {
    if (trouble.kind == Trouble::Kind::slow && trouble.at(now_) &&
        trouble.target == static_cast<Target>(target)) {
      rate *= trouble.factor;
    }
  }
  return rate;
}

/// Reads of each target whose bytes flow.
std::vector<int> Storage::active() const {
  std::vector<int> active(model_.targets.size());
  for (const Served& served : served_) {
    active[static_cast<std::size_t>(served.read.target)] +=
        served.ready <= now_ + tiny_seconds && served.left > tiny_bytes ? 1 : 0;
  }
  return active;
}

const Storage::Flow& Storage::flow() const {
  if (!flow_) {
    flow_ = Flow{.active = active(), .rates = {}};
    flow_->rates = shared_rates(flow_->active);
  }
  return *flow_;
}

/// What each target can give, shared within its server and then within this host's network.
std::vector<double> Storage::shared_rates(const std::vector<int>& active) const {
  std::vector<double> rates(active.size());
  std::map<int, std::vector<std::size_t>> servers;
  for (std::size_t target = 0; target < active.size(); ++target) {
    rates[target] = active[target] > 0 ? capacity(target) : 0;
    servers[model_.targets[target].server].push_back(target);
  }
  for (const auto& [server, targets] : servers) {
    std::vector<double> wants;
    for (const std::size_t target : targets) {
      wants.push_back(rates[target]);
    }
    const std::vector<double> shares = fair_shares(wants, model_.flow);
    for (std::size_t place = 0; place < targets.size(); ++place) {
      rates[targets[place]] = shares[place];
    }
  }
  return fair_shares(rates, model_.network);
}

double Storage::rate_of_read(const Served& served) const {
  const auto target = static_cast<std::size_t>(served.read.target);
  const bool flows = served.ready <= now_ + tiny_seconds && served.left > tiny_bytes;
  return flows ? flow().rates[target] / flow().active[target] : 0;
}

double Storage::next_event() const {
  const std::vector<double>& rates = flow().rates;
  double next = never_ending;
  for (const Served& served : served_) {
    if (served.ready > now_ + tiny_seconds) {
      next = std::min(next, served.ready);
    } else if (served.left <= tiny_bytes) {
      return now_;
    } else if (const double rate = rate_of_read(served); rate > 0) {
      next = std::min(next, now_ + served.left / rate);
    }
  }
  for (std::size_t target = 0; target < rates.size(); ++target) {
    const double above = rates[target] - model_.targets[target].base;
    if (above > 0 && credits_[target] > tiny_bytes) {
      next = std::min(next, now_ + credits_[target] / above);
    }
  }
  for (const Trouble& trouble : troubles_) {
    for (const double edge : {trouble.from_s, trouble.until_s}) {
      if (edge > now_) {
        next = std::min(next, edge);
      }
    }
  }
  return next;
}

std::vector<SimulatedDone> Storage::advance(double now) {
  const std::vector<double>& rates = flow().rates;
  const double passed = now - now_;
  for (Served& served : served_) {
    served.left -= rate_of_read(served) * passed;
  }
  for (std::size_t target = 0; target < rates.size(); ++target) {
    const TargetModel& model = model_.targets[target];
    credits_[target] = std::clamp(credits_[target] - (rates[target] - model.base) * passed, 0.0,
                                  model.credit_bytes);
  }
  now_ = now;
  flow_.reset();
  std::vector<SimulatedDone> done;
  std::erase_if(served_, [&](const Served& served) {
    if (served.ready > now_ + tiny_seconds || served.left > tiny_bytes) {
      return false;
    }
    const std::uint32_t file = served.read.extent.file;
    if (served.restores && !restored_files_[file]) {
      restored_files_[file] = true;
      restored_ += files_[file].bytes;
    }
    done.push_back({.id = served.read.id,
                    .target = served.read.target,
                    .bytes = served.error == 0 ? served.brings : 0,
                    .error = served.error,
                    .took_s = now_ - served.begun,
                    .flipped = served.flipped && served.error == 0,
                    .cut = served.cut && served.error == 0});
    return true;
  });
  return done;
}

double Storage::waits_for_restore() const {
  return static_cast<double>(std::ranges::count_if(served_, [&](const Served& served) {
    return served.restores && served.ready > now_ + tiny_seconds;
  }));
}

std::uint64_t Storage::released_bytes() const {
  std::uint64_t bytes = 0;
  for (std::size_t file = 0; file < files_.size(); ++file) {
    bytes += files_[file].restore_s > 0 && !restored_files_[file] ? files_[file].bytes : 0;
  }
  return bytes;
}

std::size_t Storage::reads_at(Target target) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      served_, [&](const Served& served) { return served.read.target == target; }));
}

}  // namespace sprat::io_simulation
