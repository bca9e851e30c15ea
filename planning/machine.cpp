// The table of devices, and how measured lines become rates.
//
// Sources: the makers' data sheets for memory and dense peaks (f32: TF32 where tensor cores have
// it, as PyTorch uses it if told to); AWS's pages for memory of hosts; PCIe 3 x16 of p3dn and p4d
// gives 13 GB/s, PCIe 4 of g5 25, PCIe 5 of the rest 50. Assumed: 2 GiB of each GPU are the
// driver's and the libraries'; a core of c5n multiplies 60 GFLOP/s in f32.
#include "planning/machine.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "comm/base/check.hpp"
#include "planning/foreign_text.hpp"

namespace sprat::planning {
namespace {

using Json = nlohmann::json;
using collectives::Collective;

constexpr std::array devices = {
    Device{"p3dn", "24xlarge", 32, 2, 125, 15.7, 13, 768},
    Device{"p4d", "24xlarge", 40, 2, 312, 156, 13, 1152},
    Device{"p4de", "24xlarge", 80, 2, 312, 156, 13, 1152},
    Device{"p5", "48xlarge", 80, 2, 989, 494, 50, 2048},
    Device{"p5e", "48xlarge", 141, 2, 989, 494, 50, 2048},
    Device{"p5en", "48xlarge", 141, 2, 989, 494, 50, 2048},
    Device{"p6-b200", "48xlarge", 180, 2, 2250, 1125, 50, 2048},
    Device{"g5", "48xlarge", 24, 2, 70, 35, 25, 768},
    Device{"trn1", "32xlarge", 32, 2, 190, 47.5, 13, 512},
    Device{"trn1n", "32xlarge", 32, 2, 190, 47.5, 13, 512},
    Device{"c5n", "18xlarge", 5.3, 0, 0.06, 0.06, 1, 192},
};

/// Points of one collective and number of ranks: bytes and seconds.
struct Points {
  std::vector<double> bytes, seconds;
};

/// Of rows that no step has, such as sendrecv, there is none.
std::optional<Collective> collective_named(const std::string& word) {
  for (const Collective one : collectives::all_collectives()) {
    if (word == collectives::name(one)) {
      return one;
    }
  }
  return std::nullopt;
}

/// Least squares of relative errors, so that small sizes count as much as large ones.
MeasuredCollective line_through(Collective collective, int ranks, const Points& points) {
  double weights = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (std::size_t i = 0; i < points.bytes.size(); ++i) {
    const double weight = 1 / (points.seconds[i] * points.seconds[i]);
    weights += weight;
    x += weight * points.bytes[i];
    y += weight * points.seconds[i];
    xx += weight * points.bytes[i] * points.bytes[i];
    xy += weight * points.bytes[i] * points.seconds[i];
  }
  // One size alone, or a cloud, gives no slope: then all of it is latency. What is left of one size
  // is rounding.
  const double below = weights * xx - x * x;
  const bool sloped = below > 1e-9 * weights * xx;
  const double slope = sloped ? std::max(0.0, (weights * xy - x * y) / below) : 0;
  return {.collective = collective,
          .ranks = ranks,
          .seconds = std::max(0.0, (y - slope * x) / weights),
          .seconds_per_byte = slope};
}

struct RateKey {
  std::string_view name;
  double Calibration::*value;
  double unit;
};
constexpr std::array rate_keys = {
    RateKey{"gemm_flops", &Calibration::flops, 1},
    RateKey{"memory_GBps", &Calibration::memory_GBps, 1},
    RateKey{"host_link_GBps", &Calibration::host_link_GBps, 1},
    RateKey{"memory_GiB", &Calibration::memory_GiB, 1},
    RateKey{"loader_MBps", &Calibration::loader_MBps, 1},
    RateKey{"layer_overhead_us", &Calibration::layer_overhead_s, 1e-6},
};

/// A misspelt rate would leave an assumption in force, so it is refused.
void read_rates(const Json& line, const std::string& where, Calibration& rates) {
  for (const auto& [key, value] : line.items()) {
    const auto found = std::ranges::find(rate_keys, key, &RateKey::name);
    std::string known;
    for (const RateKey& one : rate_keys) {
      known.append(known.empty() ? "" : ", ").append(one.name);
    }
    require(found != rate_keys.end(), where, ": \"", printable(key), "\" is no rate; there are ",
            known, ", and rows of sprat bench --json");
    // Beyond these, times are no numbers any more.
    constexpr double least = 1e-6, most = 1e30;
    require(value.is_number() && value.get<double>() >= least && value.get<double>() <= most, where,
            ": ", printable(key), " is ", shown(value), "; it is a number from ", least, " to ",
            most);
    rates.*found->value = value.get<double>() * found->unit;
  }
}

}  // namespace

std::span<const Device> all_devices() { return devices; }

Calibration parse_calibration(std::string_view text, const std::string& origin) {
  Calibration rates;
  std::map<std::pair<Collective, int>, Points> points;
  int number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view words = text.substr(begin, end - begin);
    begin = end + 1;
    const std::string where = sprat::text(origin, " line ", ++number);
    if (words.find_first_not_of(" \t\r") == std::string_view::npos) {
      continue;
    }
    const Json line = Json::parse(words, nullptr, /*allow_exceptions=*/false);
    require(line.is_object(), where, " is no JSON object; each line is one");
    if (!line.contains("collective")) {
      read_rates(line, where, rates);
      continue;
    }
    const auto is_number = [](const Json& object, const char* key) {
      return object.is_object() && object.contains(key) && object[key].is_number();
    };
    const bool whole = line["collective"].is_string() && is_number(line, "bytes") &&
                       is_number(line, "ranks") && line.contains("time_us") &&
                       is_number(line["time_us"], "median");
    require(whole, where,
            " has no bytes, ranks or time_us.median; give rows of sprat bench --json");
    require(line["ranks"].is_number_integer() && line["ranks"] >= 1 && line["ranks"] <= most_ranks,
            where, ": ranks is ", shown(line["ranks"]), "; it is a whole number from 1 to ",
            most_ranks);
    require(line["bytes"] >= 0, where, ": bytes is ", shown(line["bytes"]), "; it is 0 or more");
    const auto what = collective_named(line["collective"].get<std::string>());
    const double seconds = line["time_us"]["median"].get<double>() * 1e-6;
    if (what && seconds > 0) {  // messages and exchanges are no part of a step
      Points& of = points[{*what, line["ranks"].get<int>()}];
      of.bytes.push_back(line["bytes"].get<double>());
      of.seconds.push_back(seconds);
    }
  }
  for (const auto& [key, measured] : points) {
    rates.collectives.push_back(line_through(key.first, key.second, measured));
  }
  return rates;
}

double TrainingMachine::flops(DType precision) const {
  if (measured.flops > 0) {
    return measured.flops;
  }
  const double peak = precision == DType::f32 ? device.wide_TFLOPS : device.narrow_TFLOPS;
  return product_share * peak * 1e12;
}

double TrainingMachine::usable_bytes() const {
  return (measured.memory_GiB > 0 ? measured.memory_GiB : device.memory_GiB - device.reserved_GiB) *
         GiB;
}

double TrainingMachine::memory_bytes_per_s() const {
  return (measured.memory_GBps > 0 ? measured.memory_GBps : network.copy_GBps) * giga;
}

double TrainingMachine::host_link_bytes_per_s() const {
  return (measured.host_link_GBps > 0 ? measured.host_link_GBps : device.host_link_GBps) * giga;
}

/// Unmeasured: ten units of FSx's SCRATCH_2, which the documents call enough for 100 GB in 30 s.
double TrainingMachine::loader_bytes_per_s() const {
  return (measured.loader_MBps > 0 ? measured.loader_MBps : 2400) * 1e6;
}

TrainingMachine machine_of(const collectives::Machine& network) {
  const auto found = std::ranges::find(devices, network.name, &Device::machine);
  // machine_of(topology) names a machine of its table, and the test holds both tables together.
  require(found != devices.end(), "machine \"", network.name,
          "\" has no device in the plan's table");
  return {.network = network, .device = *found, .measured = {}};
}

TrainingMachine machine_from(std::string_view words) {
  const std::size_t comma = std::min(words.find(','), words.size());
  constexpr std::string_view sagemaker = "ml.";
  std::string_view base = words.substr(0, comma);
  base.remove_prefix(base.starts_with(sagemaker) ? sagemaker.size() : 0);
  const std::size_t dot = std::min(base.find('.'), base.size());
  collectives::Machine network = collectives::machine_named(base.substr(0, dot));
  const int whole = network.ranks;
  if (comma < words.size()) {
    collectives::change(network, words.substr(comma + 1));
  }
  TrainingMachine machine = machine_of(network);
  // Smaller sizes of a family have as much less of the host's memory.
  machine.device.host_memory_GiB *= std::min(1.0, static_cast<double>(network.ranks) / whole);
  // p5.4xlarge has one of p5's eight GPUs, so taking a size for another plans another machine.
  require(dot == base.size() || base.substr(dot + 1) == machine.device.size, "machine: ", base,
          " is not in the table, which has ", network.name, ".", machine.device.size,
          "; say what it has of that one's: ", network.name, ",ranks=1,rails=1");
  return machine;
}

}  // namespace sprat::planning
