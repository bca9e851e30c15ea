// Hosts on paper as training sees them: the collectives' machine, with what a device computes and
// holds, and rates that were measured in their place.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan/problem.hpp"
#include "collectives/simulate/machine.hpp"
#include "sprat/buffer.hpp"

namespace sprat::planning {

/// Memory is told in the first, rates in the second.
inline constexpr double GiB = 1024.0 * 1024 * 1024, giga = 1e9;
/// What is planned for, of one host and of all together.
inline constexpr int most_ranks_of_host = 512, most_ranks = 1 << 20;

/// What one rank computes with.
struct Device {
  std::string_view machine;    ///< Name in the collectives' table.
  std::string_view size;       ///< AWS's of the host that has as many devices as the table says.
  double memory_GiB = 0;       ///< Of the device, or a core's share of its host's.
  double reserved_GiB = 0;     ///< Of that: the driver's context, libraries, fragments.
  double narrow_TFLOPS = 0;    ///< Peak of dense products of 16 bits,
  double wide_TFLOPS = 0;      ///< and of f32.
  double host_link_GBps = 0;   ///< A device to the host's memory and back, where tapes go.
  double host_memory_GiB = 0;  ///< Of the host, which offloaded activations share.
};
std::span<const Device> all_devices();

/// A line through measured times of one collective: latency and seconds a byte of the whole buffer.
struct MeasuredCollective {
  collectives::Collective collective{};
  int ranks = 0;  ///< That it was measured with.
  double seconds = 0, seconds_per_byte = 0;
};

/// Rates of real machines; what is 0 or absent is taken from the table.
struct Calibration {
  double flops = 0;             ///< Of products on one rank, achieved.
  double memory_GBps = 0;       ///< Copying in its memory.
  double host_link_GBps = 0;    ///< To and from where activations are offloaded.
  double memory_GiB = 0;        ///< That a rank may take.
  double loader_MBps = 0;       ///< Of the whole job.
  double layer_overhead_s = 0;  ///< Of a micro-batch and layer, beside products.
  std::vector<MeasuredCollective> collectives;
};
/// Lines of JSON: rows of `sprat bench --json`, and objects with any of gemm_flops, memory_GBps,
/// host_link_GBps, memory_GiB, loader_MBps, layer_overhead_us. Throws Error{invalid_argument} that
/// begins with `origin` and names line and key.
Calibration parse_calibration(std::string_view text, const std::string& origin);

/// A machine with its device.
struct TrainingMachine {
  collectives::Machine network;
  Device device;
  Calibration measured;

  /// Share of the peak that products get where nothing was measured.
  static constexpr double product_share = 0.5;
  /// Share of a wire's rate that collectives get; the table has peaks.
  static constexpr double wire_share = 0.8;

  double flops(DType precision) const;
  double usable_bytes() const;
  double memory_bytes_per_s() const;
  double host_link_bytes_per_s() const;
  double loader_bytes_per_s() const;
};

/// "p4d.24xlarge", "ml.p4d.24xlarge" as SageMaker has it, "p4d", "p4d,rails=2". Throws
/// Error{invalid_argument} that lists the names, or says of a smaller size how to give its counts.
TrainingMachine machine_from(std::string_view words);
/// Of what was read from XML, whose device is that of the machine in the table it is most like.
TrainingMachine machine_of(const collectives::Machine& network);

}  // namespace sprat::planning
