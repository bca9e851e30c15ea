// SMP's configuration for Python: the core's parser.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <string>

namespace sprat::pytorch {

/// "generation" and "values" of a configuration as JSON: every key of that generation, given or by
/// default. Throws c10::ValueError naming what is wrong, or what sprat.torch does not carry out.
pybind11::dict smp_parameters(const std::string& json);

}  // namespace sprat::pytorch
