#include "io/capacity/fsx.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "comm/base/check.hpp"

namespace sprat::io {
namespace {

constexpr std::string_view tiering = "INTELLIGENT_TIERING";
constexpr std::uint64_t gib_per_tib = 1000;  // as AWS counts: 1.2 TiB is StorageCapacity 1200
constexpr double ssd_cache_gib_per_tib = 200;

// User guide of October 2022, "performance"; SSD rows as in 2026. Disk rates are those of reads.
constexpr FsxKind fsx_table[] = {
    {.deployment = "SCRATCH_1",
     .mbps_per_tib = 200,
     .network = 200,
     .disk = 200,
     .first_gib = 1200,
     .second_gib = 2400,
     .step_gib = 3600,
     .gib_per_server = 3600},
    // Scratch systems have no burst of disks, only of the network.
    {.deployment = "SCRATCH_2",
     .mbps_per_tib = 200,
     .network = 200,
     .disk = 200,
     .network_burst = 1300,
     .ram_gib_per_tib = 6.7,
     .first_gib = 1200,
     .step_gib = 2400,
     .gib_per_server = 2400},
    // In some regions the network of PERSISTENT_1 bursts to 530 alone.
    {.deployment = "PERSISTENT_1",
     .mbps_per_tib = 50,
     .network = 250,
     .disk = 50,
     .network_burst = 1300,
     .disk_burst = 240,
     .burst_differs_by_region = true,
     .ram_gib_per_tib = 2.2,
     .first_gib = 1200,
     .step_gib = 2400,
     .gib_per_server = 2400},
    {.deployment = "PERSISTENT_1",
     .mbps_per_tib = 100,
     .network = 500,
     .disk = 100,
     .network_burst = 1300,
     .disk_burst = 240,
     .burst_differs_by_region = true,
     .ram_gib_per_tib = 4.4,
     .first_gib = 1200,
     .step_gib = 2400,
     .gib_per_server = 2400},
    {.deployment = "PERSISTENT_1",
     .mbps_per_tib = 200,
     .network = 750,
     .disk = 200,
     .network_burst = 1300,
     .disk_burst = 240,
     .burst_differs_by_region = true,
     .ram_gib_per_tib = 8.8,
     .first_gib = 1200,
     .step_gib = 2400,
     .gib_per_server = 2400},
    // Turning disks, alone and behind an SSD cache of a fifth of the storage, which then is what
    // reads are served from.
    {.deployment = "PERSISTENT_1",
     .mbps_per_tib = 12,
     .disks_turn = true,
     .network = 40,
     .disk = 12,
     .network_burst = 375,
     .disk_burst = 80,
     .burst_differs_by_region = true,
     .ram_gib_per_tib = 0.4,
     .first_gib = 6000,
     .step_gib = 6000,
     .gib_per_server = 6000},
    {.deployment = "PERSISTENT_1",
     .mbps_per_tib = 12,
     .disks_turn = true,
     .ssd_cache = true,
     .network = 200,
     .disk = 200,
     .network_burst = 1900,
     .ram_gib_per_tib = ssd_cache_gib_per_tib,
     .first_gib = 6000,
     .step_gib = 6000,
     .gib_per_server = 6000},
    {.deployment = "PERSISTENT_1",
     .mbps_per_tib = 40,
     .disks_turn = true,
     .network = 150,
     .disk = 40,
     .network_burst = 1300,
     .disk_burst = 250,
     .burst_differs_by_region = true,
     .ram_gib_per_tib = 1.5,
     .first_gib = 1800,
     .step_gib = 1800,
     .gib_per_server = 1800},
    {.deployment = "PERSISTENT_1",
     .mbps_per_tib = 40,
     .disks_turn = true,
     .ssd_cache = true,
     .network = 750,
     .disk = 200,
     .network_burst = 6500,
     .ram_gib_per_tib = ssd_cache_gib_per_tib,
     .first_gib = 1800,
     .step_gib = 1800,
     .gib_per_server = 1800},
    // Steps are larger with EFA; those are multiples of these.
    {.deployment = "PERSISTENT_2",
     .mbps_per_tib = 125,
     .network = 320,
     .disk = 125,
     .network_burst = 1300,
     .disk_burst = 500,
     .ram_gib_per_tib = 3.4,
     .first_gib = 1200,
     .step_gib = 2400,
     .gib_per_server = 2400},
    {.deployment = "PERSISTENT_2",
     .mbps_per_tib = 250,
     .network = 640,
     .disk = 250,
     .network_burst = 1300,
     .disk_burst = 500,
     .ram_gib_per_tib = 6.8,
     .first_gib = 1200,
     .step_gib = 2400,
     .gib_per_server = 2400},
    // From here on the base is as fast as the network can burst.
    {.deployment = "PERSISTENT_2",
     .mbps_per_tib = 500,
     .network = 1300,
     .disk = 500,
     .ram_gib_per_tib = 13.7,
     .first_gib = 1200,
     .step_gib = 2400,
     .gib_per_server = 2400},
    {.deployment = "PERSISTENT_2",
     .mbps_per_tib = 1000,
     .network = 2600,
     .disk = 1000,
     .ram_gib_per_tib = 27.3,
     .first_gib = 1200,
     .step_gib = 2400,
     .gib_per_server = 2400},
    // Throughput is ordered by itself, and storage grows with what is written.
    {.deployment = tiering, .mbps_per_tib = 4000},
};

template <class Number>
std::optional<Number> whole_in(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool all = error == std::errc{} && end == text.data() + text.size() && !text.empty();
  return all ? std::optional(value) : std::nullopt;
}

std::vector<std::string_view> colon_parts(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t colon = text.find(':');
    parts.push_back(text.substr(0, colon));
    if (colon == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(colon + 1);
  }
}

std::string spelled(const FsxKind& kind) {
  return kind.deployment == tiering ? fmt::format("{}:MBPS", tiering)
                                    : fmt::format("{}:{}{}:GIB", kind.deployment, kind.mbps_per_tib,
                                                  kind.ssd_cache ? "+cache" : "");
}

[[noreturn]] void refuse_fsx(std::string_view text, const std::string& why) {
  std::string there_is;
  for (const FsxKind& kind : fsx_table) {
    there_is += (there_is.empty() ? "" : ", ") + spelled(kind);
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("\"{}\" is no FSx file system: {}; there are {}", text, why, there_is));
}

double burst_or(const std::optional<double>& burst, double base) { return burst.value_or(base); }

}  // namespace

std::span<const FsxKind> fsx_kinds() { return fsx_table; }

std::string fsx_kind_text(const FsxKind& kind) {
  if (kind.deployment == tiering) {
    return std::string(tiering);
  }
  // The tier tells the kinds of PERSISTENT apart; SCRATCH has one.
  const bool tiered = kind.deployment.starts_with("PERSISTENT");
  return fmt::format("{}{}{}{}", kind.deployment,
                     tiered ? fmt::format("-{}", kind.mbps_per_tib) : "",
                     kind.disks_turn ? " HDD" : "", kind.ssd_cache ? " + SSD cache" : "");
}

FsxSystem parse_fsx(std::string_view text) {
  const std::vector<std::string_view> parts = colon_parts(text);
  const bool tiers = parts[0] == tiering;
  if (parts.size() != (tiers ? 2u : 3u)) {
    refuse_fsx(text, fmt::format("it has {} parts", parts.size()));
  }
  for (const FsxKind& kind : fsx_table) {
    const std::string tier = fmt::format("{}{}", kind.mbps_per_tib, kind.ssd_cache ? "+cache" : "");
    if (kind.deployment != parts[0] || (!tiers && tier != parts[1])) {
      continue;
    }
    const auto amount = whole_in<std::uint64_t>(parts.back());
    constexpr std::uint64_t most = 1'000'000'000;
    if (!amount || *amount == 0 || *amount > most) {
      refuse_fsx(text, fmt::format("\"{}\" is no whole number", parts.back()));
    }
    if (tiers) {
      const std::uint64_t step = kind.mbps_per_tib;
      if (*amount % step != 0) {
        refuse_fsx(text, fmt::format("its throughput comes in steps of {} MB/s", step));
      }
      return {.kind = &kind, .mbps = *amount};
    }
    const std::uint64_t next = fsx_capacity(kind, static_cast<double>(*amount));
    if (next != *amount) {
      refuse_fsx(text,
                 fmt::format("there is none of {} GiB, the next larger has {}", *amount, next));
    }
    return {.kind = &kind, .gib = *amount};
  }
  refuse_fsx(text, "no kind is spelt so");
}

std::string fsx_option(const FsxSystem& system) {
  return system.gib == 0
             ? fmt::format("{}:{}", system.kind->deployment, system.mbps)
             : fmt::format("{}:{}{}:{}", system.kind->deployment, system.kind->mbps_per_tib,
                           system.kind->ssd_cache ? "+cache" : "", system.gib);
}

std::string fsx_text(const FsxSystem& system) {
  return system.gib == 0 ? fmt::format("{} of {} MB/s", fsx_kind_text(*system.kind), system.mbps)
                         : fmt::format("{} of {:.1f} TiB", fsx_kind_text(*system.kind),
                                       static_cast<double>(system.gib) / gib_per_tib);
}

std::uint64_t fsx_capacity(const FsxKind& kind, double gib) {
  for (const std::uint64_t small : {kind.first_gib, kind.second_gib}) {
    if (small > 0 && gib <= static_cast<double>(small)) {
      return small;
    }
  }
  constexpr double rounding = 1e-9;  // 12000 that came out of a division is not more than 12000
  const double steps = std::ceil(gib / static_cast<double>(kind.step_gib) - rounding);
  return static_cast<std::uint64_t>(steps) * kind.step_gib;
}

FsxSystem fsx_for_rate(const FsxKind& kind, double mbps) {
  constexpr double most = 1e12;  // far above all there is, and a capacity for it has a number
  mbps = std::clamp(mbps, 0.0, most);
  if (kind.deployment == tiering) {
    const double units = std::max(1.0, std::ceil(mbps / kind.mbps_per_tib));
    return {.kind = &kind, .mbps = static_cast<std::uint64_t>(units) * kind.mbps_per_tib};
  }
  // The slower of both, since every byte that no cache holds passes both.
  const double per_tib = std::min(kind.network, kind.disk);
  return {.kind = &kind, .gib = fsx_capacity(kind, mbps / per_tib * gib_per_tib)};
}

FsxRates fsx_rates(const FsxSystem& system) {
  const FsxKind& kind = *system.kind;
  // Ordered by throughput: there is nothing to multiply.
  if (kind.deployment == tiering) {
    const auto rate = static_cast<double>(system.mbps);
    // A server for each step of throughput; how much memory each has is not published.
    return {.disk = rate,
            .disk_burst = rate,
            .memory = rate,
            .memory_burst = rate,
            .servers = rate / kind.mbps_per_tib};
  }
  const double tib = static_cast<double>(system.gib) / gib_per_tib;
  const double network = burst_or(kind.network_burst, kind.network);
  FsxRates rates{.disk = tib * std::min(kind.network, kind.disk),
                 .disk_burst = tib * std::min(network, burst_or(kind.disk_burst, kind.disk)),
                 .memory = tib * kind.network,
                 .memory_burst = tib * network,
                 .servers = std::ceil(static_cast<double>(system.gib) /
                                      static_cast<double>(kind.gib_per_server))};
  if (kind.ram_gib_per_tib) {
    rates.memory_bytes = *kind.ram_gib_per_tib * tib * static_cast<double>(1 << 30);
  }
  return rates;
}

std::optional<std::uint64_t> fsx_metadata_iops(const FsxSystem& system) {
  if (system.kind->deployment == tiering) {
    return 6000;  // the lesser of the two that it can have
  }
  if (system.kind->deployment != "PERSISTENT_2") {
    return std::nullopt;
  }
  constexpr std::uint64_t step = 12'000, gib_per_step = 24'000;
  if (system.gib >= 48'000) {
    return step * (system.gib / gib_per_step);
  }
  return system.gib >= 12'000  ? step
         : system.gib >= 4'800 ? 6000
         : system.gib >= 2'400 ? 3000
                               : 1500;
}

}  // namespace sprat::io
