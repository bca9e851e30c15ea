#include "io/lustre/hsm_calls.hpp"

#include <array>

namespace sprat::io {

std::optional<HsmState> hsm_state_of(const FsProbe& probe, int descriptor) {
  const std::array<std::byte, hsm_state_bytes> room{};
  const ProbeAnswer answer = probe.control(descriptor, hsm_state_ioctl, room);
  if (answer.error != 0 || answer.bytes.size() != hsm_state_bytes) {
    return std::nullopt;
  }
  return parse_hsm_state(std::span(answer.bytes).first<hsm_state_bytes>());
}

std::optional<LustreFid> fid_of(const FsProbe& probe, int descriptor) {
  // The number says a long, and the kernel writes a whole FID.
  const std::array<std::byte, fid_bytes> room{};
  const ProbeAnswer answer = probe.control(descriptor, path_to_fid_ioctl, room);
  if (answer.error != 0 || answer.bytes.size() != fid_bytes) {
    return std::nullopt;
  }
  return parse_fid(std::span(answer.bytes).first<fid_bytes>());
}

int request_restore(const FsProbe& probe, int root, std::span<const LustreFid> files) {
  return probe.control(root, hsm_request_ioctl, encode_restore(files)).error;
}

}  // namespace sprat::io
