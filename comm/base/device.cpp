// The table of devices.
#include "comm/base/device.hpp"

#include <array>
#include <charconv>

#include "comm/base/check.hpp"

namespace sprat {

extern const DeviceKind host_device;
#ifdef SPRAT_CUDA
extern const DeviceKind cuda_device;
#endif

std::span<const DeviceKind* const> all_device_kinds() noexcept {
  static constexpr std::array kinds = {
#ifdef SPRAT_CUDA
      &cuda_device,
#endif
      &host_device,
  };
  return kinds;
}

std::unique_ptr<Device> open_device(std::string_view name) {
  const std::size_t colon = std::min(name.find(':'), name.size());
  const std::string_view digits = name.substr(std::min(colon + 1, name.size()));
  int index = 0;
  if (colon < name.size()) {
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, index);
    require(error == std::errc() && stop == end, "device \"", name,
            "\" is not a kind and a number such as cuda:1");
  }
  std::string known;
  for (const DeviceKind* kind : all_device_kinds()) {
    const int count = kind->count();
    if (name.substr(0, colon) == kind->name && index >= 0 && index < count) {
      return kind->open(index);
    }
    known += text(known.empty() ? "" : ", ", count, " of ", kind->name);
  }
  throw Error(ErrorCode::unavailable, text("there is no device \"", name, "\"; there are ", known));
}

}  // namespace sprat
