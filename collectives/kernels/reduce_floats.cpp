// Reduction kernels of f32 and f64.
#include "collectives/kernels/reduce_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/reduce_floats.cpp"
#include <hwy/foreach_target.h>  // Compiles what follows once per instruction set.

#include "collectives/kernels/reduce_float_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sprat::collectives {
namespace HWY_NAMESPACE {

void run_floats(const CheckedReduction& reduction) {
  if (reduction.arithmetic.input == DType::f32) {
    return reduce_floats_of<Native<float>>(reduction);
  }
  reduce_floats_of<Native<double>>(reduction);
}

PreparedReduction::Sweep choose_floats_sweep(const Arithmetic& arithmetic) {
  return arithmetic.input == DType::f32 ? sweep_of<Native<float>>(arithmetic)
                                        : sweep_of<Native<double>>(arithmetic);
}

}  // namespace HWY_NAMESPACE
}  // namespace sprat::collectives
HWY_AFTER_NAMESPACE();

// Compiled once, unlike what is above: it picks the best instruction set of this processor.
#if HWY_ONCE
namespace sprat::collectives {

HWY_EXPORT(run_floats);
HWY_EXPORT(choose_floats_sweep);

[[gnu::hot]] void reduce_floats(const CheckedReduction& reduction) {
  HWY_DYNAMIC_DISPATCH(run_floats)(reduction);
}

PreparedReduction::Sweep sweep_of_floats(const Arithmetic& arithmetic) {
  return HWY_DYNAMIC_DISPATCH(choose_floats_sweep)(arithmetic);
}

}  // namespace sprat::collectives
#endif
