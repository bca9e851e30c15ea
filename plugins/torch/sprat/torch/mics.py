"""DeepSpeed's MiCS, mended: a coalesced gather whose end can be waited for, on any backend."""

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d


def mend() -> None:
    """Makes `mics_hierarchical_params_gather` run; call it once, before deepspeed.initialize().

    DeepSpeed waits for the last gather inside PyTorch's coalescing manager, which PyTorch forbids,
    and not for the manager: the gather in two levels raises ValueError on every backend. DeepSpeed
    prefers a function of this name where PyTorch has one.
    """
    distributed_c10d._all_gather_base_coalesced = _gather_coalesced


def _gather_coalesced(outputs: list[torch.Tensor], inputs: list[torch.Tensor],
                      group: dist.ProcessGroup | None = None, async_op: bool = False):
    """Gathers each input into its output; returns what can be waited for if `async_op`."""
    with distributed_c10d._coalescing_manager(group, inputs[0].device,
                                              async_ops=async_op) as manager:
        for output, part in zip(outputs, inputs):
            dist.all_gather_into_tensor(output, part, group=group, async_op=async_op)
    return manager if async_op else None
