#include "cli/plan/storage.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/size_value.hpp"
#include "cli/whole_number.hpp"
#include "io/report/cause.hpp"

namespace sprat::cli {
namespace {

using io::figure;

constexpr double giga = 1e9, gibi = 1 << 30;

// Units are AWS's where its bills have them, so that people can compare: TiB of storage are 1000
// GiB.
double tib(const io::FsxSystem& system) { return static_cast<double>(system.gib) / 1000; }

/// "16.8 TiB", or the throughput of a kind that is ordered by it.
std::string amount(const io::FsxSystem& system) {
  return system.gib > 0 ? fmt::format("{:.1f}", tib(system)) : fmt::format("{} MB/s", system.mbps);
}

std::string memory_text(const io::FsxRates& rates) {
  // A question mark and no guess: AWS does not publish it for all kinds.
  return rates.memory_bytes ? fmt::format("{:.1f}", *rates.memory_bytes / gibi) : "?";
}

std::string need_text(const io::StorageDemand& demand) {
  const auto later = [&demand](io::Ownership ownership) {
    const double hit = io::client_hit_share(demand, ownership);
    return fmt::format("{:.0f} % come from clients' caches: {} MB/s", 100 * hit,
                       figure(io::needed_mbps(demand, hit)));
  };
  const double first = io::needed_mbps(demand, 0);
  // Clients' caches stand apart from the servers' memory: only the first spare the network.
  return fmt::format(
      "{} GB an epoch in {} s on {} hosts, {} GB of cache each\n"
      "first epoch: nothing is cached: {} MB/s are needed, {} with a margin of {}\n"
      "later epochs, any sample on any host: {}\n"
      "later epochs, samples stay with hosts or hosts serve each other: {}\n",
      figure(demand.epoch_bytes / giga), figure(demand.epoch_seconds), demand.hosts,
      figure(demand.cache_bytes / giga), figure(first), figure(first * demand.margin),
      demand.margin, later(io::Ownership::any_host), later(io::Ownership::sticky_host));
}

std::string choices_text(const io::StorageDemand& demand) {
  std::string table = fmt::format(
      "\nFSx for Lustre whose disks feed the first epoch without burst (AWS's TiB: 1000 GiB):\n"
      "{:<30} {:>9} {:>9} {:>7} {:>7} {:>9} {:>8} {:>8} {:>8} {:>8}\n",
      "kind", "TiB", fmt::format("x {}", demand.margin), "base", "burst", "cache GiB", "first s",
      "+burst s", "any s", "sticky s");
  // In the order of the user guide, not by price, which nobody here knows.
  for (const io::StorageChoice& choice : io::storage_choices(demand)) {
    table += fmt::format(
        "{:<30} {:>9} {:>9} {:>7} {:>7} {:>9} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.1f}\n",
        io::fsx_kind_text(*choice.system.kind), amount(choice.system), amount(choice.with_margin),
        figure(choice.rates.disk), figure(choice.rates.disk_burst), memory_text(choice.rates),
        choice.first.seconds, choice.first.seconds_with_burst, choice.later_any.seconds,
        choice.later_sticky.seconds);
  }
  return table +
         "base, burst: MB/s of what no cache holds. cache GiB: the servers' memory; ? is "
         "unpublished. "
         "any, sticky: a later epoch,\nbase rates, from the servers' memory what fits into it. "
         "Less "
         "storage of a higher tier may cost less: compare prices.\n";
}

std::string verdict_line(const char* when, const io::EpochEstimate& epoch) {
  return fmt::format(
      "  {:<36} {:.1f} s, {:.1f} s with burst{}{}\n", when, epoch.seconds, epoch.seconds_with_burst,
      epoch.server_share > 0
          ? fmt::format("; {:.0f} % from the servers' memory", 100 * epoch.server_share)
          : "",
      epoch.storage_limits ? "; storage is the limit" : "");
}

/// Kinds that give the same with less capacity.
std::string smaller_text(const io::StorageDemand& demand, const io::FsxSystem& system) {
  std::string list;
  for (const io::StorageChoice& choice : io::storage_choices(demand)) {
    if (choice.system.gib > 0 && choice.system.gib < system.gib) {
      list += fmt::format("{}{} of {:.1f} TiB", list.empty() ? "" : ", ",
                          io::fsx_kind_text(*choice.system.kind), tib(choice.system));
    }
  }
  // Nothing is said where the given kind is the smallest already.
  return list.empty() ? "" : "  less storage that feeds the first epoch: " + list + "\n";
}

std::string verdict_text(const io::StorageDemand& demand, const io::FsxSystem& system) {
  const io::StorageVerdict verdict = io::judge_storage(demand, system);
  const io::FsxRates& rates = verdict.rates;
  std::string words = fmt::format(
      "\n{}:\n  disks: {} MB/s base, {} burst; servers' memory: {} GiB, {} MB/s base, {} burst{}\n",
      io::fsx_text(system), figure(rates.disk), figure(rates.disk_burst), memory_text(rates),
      figure(rates.memory), figure(rates.memory_burst),
      system.kind->burst_differs_by_region ? " (less in some regions)" : "");
  words += verdict_line("first epoch", verdict.first);
  words += verdict_line("later, any sample on any host", verdict.later_any);
  words += verdict_line("later, samples stay with hosts", verdict.later_sticky);
  // Too slow without burst: what would mend it, the cheapest first.
  if (verdict.hit_share_wanted > 0) {
    words += fmt::format(
        "  in {} s without burst: {:.0f} % from clients' caches, {} GB on each host if samples "
        "stay; "
        "or {}\n",
        figure(demand.epoch_seconds), 100 * verdict.hit_share_wanted,
        figure(verdict.sticky_cache_bytes_wanted / giga),
        io::fsx_text(io::fsx_for_rate(*system.kind, io::needed_mbps(demand, 0))));
  }
  return words + smaller_text(demand, system);
}

std::string files_text(const io::StorageDemand& demand, const io::FsxSystem* system) {
  if (demand.files == 0) {
    return "";
  }
  // Opens are the one thing that more disks do not mend.
  const io::MetadataDemand metadata = io::metadata_demand(demand, system);
  const std::string given =
      metadata.given ? fmt::format("{} come with it", figure(static_cast<double>(*metadata.given)))
                     : std::string("AWS names no number for it");
  return fmt::format(
      "\n{} files in {} s: {} opens a second are {} metadata operations; {}{}\n",
      figure(demand.files), figure(demand.epoch_seconds), figure(metadata.opens_per_second),
      figure(metadata.iops), given,
      metadata.too_many ? ": too many, pack the files into shards of 100 MB or more" : "");
}

std::string host_text(const io::StorageDemand& demand, const io::FsxSystem* system) {
  std::optional<io::FsxRates> rates;
  if (system != nullptr) {
    rates = io::fsx_rates(*system);
  }
  const io::HostDemand host = io::host_demand(demand, rates ? &*rates : nullptr);
  std::string words = fmt::format("\na host reads {} MB/s in the first epoch", figure(host.mbps));
  if (demand.nic_mbps) {
    words += fmt::format("; its network carries {}{}", figure(*demand.nic_mbps),
                         host.above_nic ? ": too little" : "");
  }
  if (host.flows_mbps) {
    words += fmt::format("; flows of 5 Gbit/s from about {:.0f} servers carry {}{}", rates->servers,
                         figure(*host.flows_mbps),
                         host.above_flows ? ": too little, use EFA or more hosts" : "");
  }
  return words + "\n";
}

using StorageJson = nlohmann::ordered_json;

// Numbers without rounding: whoever reads them rounds as they like.
StorageJson epoch_json(const io::EpochEstimate& epoch) {
  return {{"seconds", epoch.seconds},
          {"seconds_with_burst", epoch.seconds_with_burst},
          {"server_memory_share", epoch.server_share},
          {"storage_limits", epoch.storage_limits}};
}

StorageJson system_json(const io::FsxSystem& system, const io::FsxRates& rates) {
  StorageJson json = {{"kind", io::fsx_kind_text(*system.kind)},
                      {"fsx", io::fsx_option(system)},
                      {"gib", system.gib},
                      {"mbps", system.mbps},
                      {"base_mbps", rates.disk},
                      {"burst_mbps", rates.disk_burst},
                      {"memory_base_mbps", rates.memory},
                      {"memory_burst_mbps", rates.memory_burst}};
  // Null and not zero: unpublished is not none.
  json["memory_bytes"] = rates.memory_bytes ? StorageJson(*rates.memory_bytes) : StorageJson();
  return json;
}

/// What `text` is, in a unit of `units`; empty if it is nothing of the kind.
template <std::size_t count>
std::optional<double> measured(const std::string& text,
                               const std::pair<const char*, double> (&units)[count]) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || !std::isfinite(value) || value < 0) {
    return std::nullopt;
  }
  for (const auto& [unit, factor] : units) {
    if (std::string(stop, end) == unit) {
      return value * factor;
    }
  }
  return std::nullopt;
}

struct PlanStorageArguments {
  std::uint64_t dataset_bytes = 0, cache_bytes = 0;
  std::string epoch, fsx;
  double files = 0, margin = 1.2, nic_gbps = 0;
  int hosts = 1;
  bool efa = false, json = false;
};

int run_plan_storage(const PlanStorageArguments& request) {
  // CLI11 reads sizes with units, and has nothing for times.
  const auto seconds = duration_seconds(request.epoch);
  if (!seconds) {
    throw UsageError(fmt::format("--epoch {} is no time, such as 30s, 5min or 2h", request.epoch));
  }
  io::StorageDemand demand{.epoch_bytes = static_cast<double>(request.dataset_bytes),
                           .epoch_seconds = *seconds,
                           .hosts = request.hosts,
                           .cache_bytes = static_cast<double>(request.cache_bytes),
                           .files = request.files,
                           .margin = request.margin,
                           .efa = request.efa};
  // Networks are sold in bits, and all rates here are in bytes.
  if (request.nic_gbps > 0) {
    demand.nic_mbps = request.nic_gbps * 1e3 / 8;
  }
  std::optional<io::FsxSystem> system;
  if (!request.fsx.empty()) {
    system = io::parse_fsx(request.fsx);
  }
  fmt::print("{}", request.json ? storage_plan_json(demand, system) + "\n"
                                : storage_plan_text(demand, system));
  return 0;
}

}  // namespace

std::optional<double> duration_seconds(const std::string& text) {
  static constexpr std::pair<const char*, double> units[] = {{"", 1},     {"s", 1},  {"ms", 1e-3},
                                                             {"min", 60}, {"m", 60}, {"h", 3600}};
  return measured(text, units);
}

std::string storage_plan_text(const io::StorageDemand& demand,
                              const std::optional<io::FsxSystem>& system) {
  io::check_demand(demand);
  const io::FsxSystem* given = system ? &*system : nullptr;
  return need_text(demand) + (given != nullptr ? verdict_text(demand, *given) : "") +
         choices_text(demand) + files_text(demand, given) + host_text(demand, given);
}

std::string storage_plan_json(const io::StorageDemand& demand,
                              const std::optional<io::FsxSystem>& system) {
  io::check_demand(demand);
  const double any = io::client_hit_share(demand, io::Ownership::any_host);
  const double sticky = io::client_hit_share(demand, io::Ownership::sticky_host);
  StorageJson json = {{"need_mbps",
                       {{"first", io::needed_mbps(demand, 0)},
                        {"first_with_margin", demand.margin * io::needed_mbps(demand, 0)},
                        {"later_any_host", io::needed_mbps(demand, any)},
                        {"later_sticky_host", io::needed_mbps(demand, sticky)}}},
                      {"client_hit_share", {{"any_host", any}, {"sticky_host", sticky}}},
                      {"host_mbps", io::host_demand(demand, nullptr).mbps},
                      {"metadata_iops", io::metadata_demand(demand, nullptr).iops}};
  for (const io::StorageChoice& choice : io::storage_choices(demand)) {
    StorageJson row = system_json(choice.system, choice.rates);
    row["gib_with_margin"] = choice.with_margin.gib;
    row["mbps_with_margin"] = choice.with_margin.mbps;
    row["first"] = epoch_json(choice.first);
    row["later_any_host"] = epoch_json(choice.later_any);
    row["later_sticky_host"] = epoch_json(choice.later_sticky);
    json["choices"].push_back(row);
  }
  if (system) {
    const io::StorageVerdict verdict = io::judge_storage(demand, *system);
    StorageJson given = system_json(*system, verdict.rates);
    given["first"] = epoch_json(verdict.first);
    given["later_any_host"] = epoch_json(verdict.later_any);
    given["later_sticky_host"] = epoch_json(verdict.later_sticky);
    given["client_hit_share_wanted"] = verdict.hit_share_wanted;
    json["given"] = given;
  }
  return json.dump();
}

Action prepare_plan_storage(CLI::App& app) {
  auto r = std::make_shared<PlanStorageArguments>();
  app.add_option("--dataset", r->dataset_bytes, "Bytes of an epoch: 100GB is 1e11, 100GiB is more")
      ->required()
      ->transform(SizeValue(true));
  app.add_option("--epoch", r->epoch, "How long computing an epoch takes: 30s, 5min, 2h")
      ->required();
  app.add_option("--hosts", r->hosts, "That train")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--cache", r->cache_bytes, "Of each host: page cache, or a local disk; 28GB")
      ->transform(SizeValue(true));
  app.add_option("--fsx", r->fsx,
                 "A file system to judge: PERSISTENT_2:250:12000 is kind, MB/s a TiB, GiB");
  app.add_option("--files", r->files, "Opened in an epoch")->check(RealNumber(0.0, 1e15));
  app.add_option("--margin", r->margin, "On top of what is needed")
      ->check(RealNumber(1.0, 100.0))
      ->capture_default_str();
  app.add_option("--nic", r->nic_gbps, "A host's network, in Gbit/s")->check(RealNumber(0.0, 1e6));
  app.add_flag("--efa", r->efa, "Hosts mount it over EFA: flows are not bound to 5 Gbit/s");
  app.add_flag("--json", r->json, "One JSON object instead of the tables");
  return [r] { return run_plan_storage(*r); };
}

}  // namespace sprat::cli
