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

at::Tensor combined_here(const std::vector<at::Tensor>& tensors, const c10d::ReduceOp& op) {
  using c10d::ReduceOp;
  at::Tensor all = tensors.front().clone(at::MemoryFormat::Contiguous);
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    const at::Tensor& next = tensors[i];
    switch (op.op_) {
      case ReduceOp::SUM:
      case ReduceOp::AVG:
      case ReduceOp::PREMUL_SUM:
        all.add_(next);
        break;
      case ReduceOp::PRODUCT:
        all.mul_(next);
        break;
      case ReduceOp::MIN:
        all = at::minimum(all, next);
        break;
      case ReduceOp::MAX:
        all = at::maximum(all, next);
        break;
      case ReduceOp::BAND:
        all.bitwise_and_(next);
        break;
      case ReduceOp::BOR:
        all.bitwise_or_(next);
        break;
      case ReduceOp::BXOR:
        all.bitwise_xor_(next);
        break;
      case ReduceOp::UNUSED:
        C10_THROW_ERROR(ValueError, "sprat has no such reduction operation");
    }
  }
  if (op.op_ == ReduceOp::AVG) {
    const auto count = static_cast<std::int64_t>(tensors.size());
    at::isIntegralType(all.scalar_type(), /*includeBool=*/false) ? all.div_(count, "trunc")
                                                                 : all.div_(count);
  }
  return all;
}

}  // namespace sprat::pytorch
