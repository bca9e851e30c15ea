// Bars from left to right, a part behind the other.
#include "cli/plan/memory_bars.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "cli/svg.hpp"
#include "planning/report.hpp"

namespace sprat::cli {
namespace {

/// Pixels.
struct BarFrame {
  double width = 1000, left = 20, plot = 940, top = 90, row = 46, bar = 20;
};
constexpr BarFrame bar_frame;
constexpr std::size_t most_bars = 12;
// As many as there are parts of a device's memory.
constexpr std::array part_colors = {"#4269d0", "#efb118", "#ff725c", "#6cc5b0",
                                    "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5"};

}  // namespace

std::string memory_bars(const planning::PlanRequest& request,
                        const planning::SearchResult& result) {
  const std::size_t bars = std::min(result.plans.size(), most_bars);
  const double room = request.machine.usable_bytes();
  const double height = bar_frame.top + bar_frame.row * static_cast<double>(bars) + 40;
  std::string picture = svg_opening(
      bar_frame.width, height, fmt::format("{}: memory of a device", request.model.name),
      fmt::format("{} x {}, {} has room", request.hosts, std::string(request.machine.network.name),
                  planning::gibibytes(room)));
  std::vector<SvgInk> inks;
  const std::vector<planning::MemoryPart>& parts = planning::memory_parts();
  for (std::size_t part = 0; part < parts.size(); ++part) {
    inks.push_back({parts[part].name, part_colors[part]});
  }
  picture += svg_legend(bar_frame.left + bar_frame.plot, bar_frame.top - 20, inks);
  for (std::size_t at = 0; at < bars; ++at) {
    const planning::Plan& plan = result.plans[at];
    const double y = bar_frame.top + bar_frame.row * static_cast<double>(at);
    picture += svg_label(bar_frame.left, y, "font-size=\"12\"",
                         fmt::format("{}: {}, {:.3g} s a step", describe(request, plan.arrangement),
                                     planning::gibibytes(plan.memory.total()), plan.time.total()));
    double x = bar_frame.left;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const double wide = bar_frame.plot * plan.memory.*parts[part].bytes / room;
      picture +=
          svg_box(x, y + 6, wide, bar_frame.bar, fmt::format("fill=\"{}\"/>\n", part_colors[part]));
      x += wide;
    }
    // Where memory ends.
    picture +=
        svg_box(bar_frame.left + bar_frame.plot, y + 6, 1, bar_frame.bar, "fill=\"black\"/>\n");
  }
  return picture + "</svg>\n";
}

}  // namespace sprat::cli
