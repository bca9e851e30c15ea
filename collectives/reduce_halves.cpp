// Reduction kernels of f16 and bf16.
#include "collectives/reduce_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/reduce_halves.cpp"
#include <hwy/foreach_target.h>  // Compiles what follows once per instruction set.

#include "collectives/reduce_float_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sprat::collectives {
namespace HWY_NAMESPACE {

void run_halves(const Request& request) {
  if (request.input == DType::f16) return reduce_floats_of<Binary16>(request);
  reduce_floats_of<Brain16>(request);
}

}  // namespace HWY_NAMESPACE
}  // namespace sprat::collectives
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sprat::collectives {

HWY_EXPORT(run_halves);

void reduce_halves(const Request& request) { HWY_DYNAMIC_DISPATCH(run_halves)(request); }

}  // namespace sprat::collectives
#endif
