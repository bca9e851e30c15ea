// Loaders of data as Python has them: batches are tensors and memory that is not copied.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace sprat::pytorch {

/// Puts DataLoader and DataBatch into the module; sprat/torch/data.py is what people use.
void bind_data(pybind11::module_& module);

}  // namespace sprat::pytorch
