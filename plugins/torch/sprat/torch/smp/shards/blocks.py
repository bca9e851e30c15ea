"""PyTorch's FSDP2 under a pipeline: blocks that are gathered when they begin, the rest once a step.

fully_shard gathers a block's parameters before its forward and its backward, and reduces its gradients
behind that, in collectives of all ranks of a stage that share them. So these run their blocks in one
order, that of the first of them, as tensor parallel ranks do. Each block is a root of its own: FSDP2's
roots run whole forwards and backwards, and a stage's ends where it waits for another rank.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState
from torch.distributed.tensor import DTensor, distribute_tensor

from ..cutting import stand_in_for
from ..sharding import members
from ..tensor.cut_parameters import copy_cut
from .parameters import ParameterShards


def local_blocks(module: nn.Module, is_local: Callable[[str], bool]) -> dict[str, nn.Module]:
    """The members of the outermost nn.ModuleLists, by name, that lie on this rank as wholes.

    Not one that shares a parameter with another module, since what uses a block's parameters must
    begin the block, nor one that fully_shard refuses: with numbers alone, or several types.
    """
    names = {one: name for name, one in module.named_modules()}
    uses = Counter(id(one) for _, one in module.named_parameters(remove_duplicate=False))
    found = {}
    for block in members(module):
        name = names[block]
        inside = Counter(id(one) for _, one in block.named_parameters(remove_duplicate=False))
        whole = all(is_local(f"{name}.{key}" if key else name) for key, _ in block.named_modules())
        own = all(uses[key] == count for key, count in inside.items())
        if inside and whole and own and _fits(block):
            found[name] = block
    return found


def _fits(block: nn.Module) -> bool:
    parameters = list(block.parameters())
    types = {one.dtype for one in parameters if one.requires_grad}
    return len(types) <= 1 and all(one.dim() > 0 and one.is_contiguous() for one in parameters)


class BlockShards(ParameterShards):
    """Of a block's parameters each rank has rows, as a DTensor; of the others parts as ever.

    A block's gradients are reduced behind each backward, and added up micro-batch by micro-batch.
    """

    def __init__(self, named: dict[str, nn.Parameter], blocks: dict[str, nn.Module],
                 mesh: DeviceMesh, shard_group: dist.ProcessGroup,
                 replicate_group: dist.ProcessGroup):
        """blocks: as local_blocks() finds them. mesh: of the ranks that share them."""
        self.blocks = blocks
        inside = {f"{at}.{name}" for at, block in blocks.items()
                  for name, _ in block.named_parameters()}
        super().__init__({name: one for name, one in named.items() if name not in inside},
                         shard_group, replicate_group)
        self.originals = named
        self._rows: dict[str, nn.Parameter] = {}
        for at, block in blocks.items():
            fully_shard(block, mesh=mesh, reshard_after_forward=True)
            for name, rows in block.named_parameters():
                self._rows[f"{at}.{name}"] = rows
        for name, rows in self._rows.items():
            copy_cut(named[name], rows)
            named[name].data = stand_in_for(named[name])
        self.own |= self._rows
        self._before: dict[str, torch.Tensor | None] = {}

    # Values.

    def share(self, name: str, value: torch.Tensor) -> torch.Tensor:
        rows = self._rows.get(name)
        if rows is None:
            return super().share(name, value)
        # Each rank has the whole: nothing is sent.
        return distribute_tensor(value, rows.device_mesh, rows.placements, src_data_rank=None)

    def joined(self, name: str, value: torch.Tensor) -> torch.Tensor:
        return value.full_tensor() if isinstance(value, DTensor) else super().joined(name, value)

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        with super().whole():
            for block in self.blocks.values():
                block.unshard()
            try:
                yield
                for at, block in self.blocks.items():
                    for name, one in block.named_parameters():
                        rows = self._rows[f"{at}.{name}"].detach()
                        rows.copy_(self.share(f"{at}.{name}", one.detach()))
            finally:
                for block in self.blocks.values():
                    block.reshard()

    def module_state(self, module: nn.Module, wanted: Callable[[str], bool]) -> dict[str, Any]:
        with super().whole():  # a block's state is that of its rows
            return {name: value.full_tensor() if isinstance(value, DTensor) else value.clone()
                    for name, value in module.state_dict().items() if wanted(name)}

    def load_module_state(self, module: nn.Module, values: dict[str, Any], strict: bool) -> None:
        values = {name: self.share(name, value) if name in self._rows else value
                  for name, value in values.items()}
        with super().whole():
            module.load_state_dict(values, strict=strict)

    # A step.

    def begin(self) -> None:
        self._before = {name: rows.grad for name, rows in self._rows.items()}
        for rows in self._rows.values():
            rows.grad = None

    def collected(self) -> dict[int, torch.Tensor]:
        found = {}
        for name, rows in self._rows.items():
            if rows.grad is not None:
                found[id(self.originals[name])] = rows.grad
            rows.grad = self._before.pop(name, None)
        return found

    def forget(self) -> None:
        for name, gradient in self._before.items():
            self._rows[name].grad = gradient
        self._before = {}
        for block in self.blocks.values():
            _forget_step(block)

    def settle(self) -> None:
        """Where a micro-batch waits in its backward: others may run the blocks that it has left.

        FSDP2 does that at the backward's end, and until then takes a block's next forward for one that is
        computed again.
        """
        for block in self.blocks.values():
            state = block._get_fsdp_state()
            if state._fsdp_param_group._training_state == TrainingState.POST_BACKWARD:
                state._root_post_backward_final_callback()

    def take_gradients(self, sums: dict[int, torch.Tensor]) -> None:
        super().take_gradients(sums)
        for name, rows in self._rows.items():
            if rows.requires_grad:
                # FSDP2 has taken the mean over the ranks.
                gradient = sums.pop(id(self.originals[name]), None)
                gradient = torch.zeros_like(rows) if gradient is None else gradient
                rows.grad = gradient if rows.grad is None else rows.grad + gradient


def _forget_step(block: nn.Module) -> None:
    """Of a step that failed in the midst of a forward or a backward: the next finds nothing of it."""
    state = block._get_fsdp_state()
    group = state._fsdp_param_group
    state._training_state = group._training_state = TrainingState.IDLE
    state._state_ctx.post_backward_final_callback_queued = False
    state._state_ctx.iter_forward_root = None
    group._post_forward_indices.clear()
    if state._is_root:  # it has run once
        state._comm_ctx.post_forward_order.clear()
    for one in group.fsdp_params:
        one.unsharded_accumulated_grad = None
        if hasattr(one, "_unsharded_param"):  # it has been gathered once
            one._unsharded_param.grad = None
    block.reshard()
