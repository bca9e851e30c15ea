// The table of devices.
#include <array>
#include <charconv>

#include "comm/base/check.hpp"
#include "device/cuda_driver.hpp"
#include "sprat/device.hpp"

namespace sprat {

extern const DeviceKind cuda_device;

std::span<const DeviceKind* const> all_device_kinds() noexcept {
  static constexpr std::array kinds = {&cuda_device};
  return kinds;
}

std::shared_ptr<Device> open_device(std::string_view name) {
  const std::size_t colon = std::min(name.find(':'), name.size());
  const std::string_view digits = name.substr(std::min(colon + 1, name.size()));
  int index = 0;
  if (colon < name.size()) {
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, index);
    require(error == std::errc() && stop == end && index >= 0, "device \"", name,
            "\" is not a kind and a number such as cuda:1");
  }
  std::string known;
  for (const DeviceKind* kind : all_device_kinds()) {
    const int count = kind->count();
    if (name.substr(0, colon) == kind->name && index < count) {
      return kind->open(index);
    }
    known += text(known.empty() ? "" : ", ", count, " of ", kind->name);
  }
  const std::string& missing = device::cuda_driver().missing;
  throw Error(ErrorCode::unavailable, text("there is no device \"", name, "\"; there are ", known,
                                           missing.empty() ? "" : ": ", missing));
}

}  // namespace sprat
