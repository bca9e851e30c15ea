// Reduction kernels of f16 and bf16.
#include "collectives/kernels/reduce_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/reduce_float16.cpp"
#include <hwy/foreach_target.h>  // Compiles what follows once per instruction set.

#include "collectives/kernels/reduce_float_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sprat::collectives {
namespace HWY_NAMESPACE {

void run_float16(const Request& request) {
  if (request.input == DType::f16) {
    return reduce_floats_of<Binary16>(request);
  }
  reduce_floats_of<Brain16>(request);
}

}  // namespace HWY_NAMESPACE
}  // namespace sprat::collectives
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sprat::collectives {

HWY_EXPORT(run_float16);

void reduce_float16(const Request& request) { HWY_DYNAMIC_DISPATCH(run_float16)(request); }

}  // namespace sprat::collectives
#endif
