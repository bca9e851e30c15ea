#include "plugins/torch/native/reduction.hpp"

#include "plugins/torch/native/elements.hpp"

namespace sprat::pytorch {
namespace {

Reduction premultiplied_sum(const c10d::ReduceOp& op) {
  const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(supplement != nullptr, "PREMUL_SUM comes without its factor; make it by ",
                    "torch.distributed._make_nccl_premul_sum(factor)");
  return Reduction::premultiplied_sum(supplement->tensor_factor.defined()
                                          ? supplement->tensor_factor.item<double>()
                                          : supplement->double_factor);
}

Reduction plain(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::sum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::avg;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::prod;
    case c10d::ReduceOp::MIN:
      return ReduceOp::min;
    case c10d::ReduceOp::MAX:
      return ReduceOp::max;
    case c10d::ReduceOp::BAND:
      return ReduceOp::band;
    case c10d::ReduceOp::BOR:
      return ReduceOp::bor;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::bxor;
    case c10d::ReduceOp::PREMUL_SUM:
    case c10d::ReduceOp::UNUSED:
      break;
  }
  C10_THROW_ERROR(ValueError, "sprat has no such reduction operation");
}

bool adds(ReduceOp op) {
  return op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premultiplied_sum;
}

}  // namespace

Reduction reduction_of(const c10d::ReduceOp& op, const at::Tensor& tensor) {
  const Reduction reduction =
      op.op_ == c10d::ReduceOp::PREMUL_SUM ? premultiplied_sum(op) : plain(op.op_);
  // Complex numbers are reduced as pairs of reals, which only sums allow.
  TORCH_CHECK_VALUE(!tensor.is_complex() || adds(reduction.op()), "Cannot use ReduceOp.",
                    describe(reduction), " with complex tensors; only sums and averages of them ",
                    "are defined here");
  const DType dtype = reduced(tensor).dtype;
  TORCH_CHECK_VALUE(takes(reduction.op(), dtype), "Cannot use ReduceOp.", describe(reduction),
                    " with elements of ", name(dtype));
  return reduction;
}

}  // namespace sprat::pytorch
