// Kernels of rounding and widening; random bits are Philox4x32-10's (Salmon et al., SC 2011).
#include "fsdp/rounding.hpp"

#include "collectives/kernels/reduce_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fsdp/rounding.cpp"
#include <hwy/foreach_target.h>  // Compiles what follows once per instruction set.

#include "fsdp/rounding_inl.hpp"

#if HWY_ONCE

#include <algorithm>
#include <cstring>

#include "collectives/kernels/reduce_environment.hpp"
#include "comm/base/check.hpp"

namespace sprat::fsdp {
namespace {

HWY_EXPORT(narrow_bf16);
HWY_EXPORT(narrow_f16);
HWY_EXPORT(draw_bf16);
HWY_EXPORT(draw_f16);
HWY_EXPORT(widen_bf16);
HWY_EXPORT(widen_f16);

void require_narrow(DType type) {
  require(type == DType::bf16 || type == DType::f16, "parameters are f32, bf16 or f16, not ",
          name(type));
}

}  // namespace

void narrow(DType type, std::span<const float> from, void* to) {
  if (type == DType::f32) {
    if (!from.empty()) {
      std::memmove(to, from.data(), from.size_bytes());
    }
    return;
  }
  require_narrow(type);
  const collectives::PlainArithmetic mode;
  auto* const out = static_cast<std::uint16_t*>(to);
  if (type == DType::bf16) {
    HWY_DYNAMIC_DISPATCH(narrow_bf16)(from.data(), out, from.size());
  } else {
    HWY_DYNAMIC_DISPATCH(narrow_f16)(from.data(), out, from.size());
  }
}

void narrow_stochastically(DType type, std::span<const float> from, void* to,
                           const RoundingKey& key) {
  require_narrow(type);
  require(key.step >= 0 && key.step >> 32 == 0, "stochastic rounding of step ", key.step,
          "; steps are below 2^32");
  const collectives::PlainArithmetic mode;
  auto* const out = static_cast<std::uint16_t*>(to);
  if (type == DType::bf16) {
    HWY_DYNAMIC_DISPATCH(draw_bf16)(from.data(), out, from.size(), key);
  } else {
    HWY_DYNAMIC_DISPATCH(draw_f16)(from.data(), out, from.size(), key);
  }
}

void widen(DType type, const void* from, std::span<float> to) {
  if (type == DType::f32) {
    std::copy_n(static_cast<const float*>(from), to.size(), to.begin());
    return;
  }
  require_narrow(type);
  const collectives::PlainArithmetic mode;
  const auto* const in = static_cast<const std::uint16_t*>(from);
  if (type == DType::bf16) {
    HWY_DYNAMIC_DISPATCH(widen_bf16)(in, to.data(), to.size());
  } else {
    HWY_DYNAMIC_DISPATCH(widen_f16)(in, to.data(), to.size());
  }
}

}  // namespace sprat::fsdp
#endif
