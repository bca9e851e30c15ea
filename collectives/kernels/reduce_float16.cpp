// Reduction kernels of f16 and bf16.
#include "collectives/kernels/reduce_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/reduce_float16.cpp"
#include <hwy/foreach_target.h>  // Compiles what follows once per instruction set.

#include "collectives/kernels/reduce_float_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sprat::collectives {
namespace HWY_NAMESPACE {

void run_float16(const CheckedReduction& reduction) {
  if (reduction.arithmetic.input == DType::f16) {
    return reduce_floats_of<Binary16>(reduction);
  }
  reduce_floats_of<Brain16>(reduction);
}

PreparedReduction::Sweep choose_float16_sweep(const Arithmetic& arithmetic) {
  return arithmetic.input == DType::f16 ? sweep_of<Binary16>(arithmetic)
                                        : sweep_of<Brain16>(arithmetic);
}

}  // namespace HWY_NAMESPACE
}  // namespace sprat::collectives
HWY_AFTER_NAMESPACE();

// Compiled once, unlike what is above: it picks the best instruction set of this processor.
#if HWY_ONCE
namespace sprat::collectives {

HWY_EXPORT(run_float16);
HWY_EXPORT(choose_float16_sweep);

void reduce_float16(const CheckedReduction& reduction) {
  HWY_DYNAMIC_DISPATCH(run_float16)(reduction);
}

PreparedReduction::Sweep sweep_of_float16(const Arithmetic& arithmetic) {
  return HWY_DYNAMIC_DISPATCH(choose_float16_sweep)(arithmetic);
}

}  // namespace sprat::collectives
#endif
