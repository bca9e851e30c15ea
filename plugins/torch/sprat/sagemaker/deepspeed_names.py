"""Names of DeepSpeed's that scripts for SMP v1 read where ranks share parameters.

SMP's sharded data parallelism was DeepSpeed's, and AWS's GPT script looks into it to log norms:
`ds_tensor` of a parameter, `fp32_partitioned_groups_flat` and `ds_param_shard_group` of the optimizer.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from sprat.torch import smp
from sprat.torch.smp.model import latest_model
from sprat.torch.smp.state import state


class Part:
    """A parameter's `ds_tensor`: this rank's part of it, filled up to equal lengths."""

    def __init__(self, name: str, elements: int) -> None:
        self.name = name
        self.ds_numel = -(-elements // state.hybrid_shard_degree)

    @property
    def data(self) -> torch.Tensor:
        """The part itself. RuntimeError before the first step, which divides parameters."""
        shards = latest_model().shards
        if shards is None or self.name not in shards.own:
            raise RuntimeError(f"{self.name!r} has no part on rank {state.rank}: parameters are "
                               "divided at the first step, over the ranks that have them")
        return shards.own[self.name].detach()


class DistributedModel(smp.DistributedModel):
    """Its parameters have `ds_tensor` where ranks share them."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if state.hybrid_shard_degree > 1:
            for name, one in self.module.named_parameters():
                one.ds_tensor = Part(name, one.numel())


class DistributedOptimizer(smp.DistributedOptimizer):
    """It has DeepSpeed's flat parameters where ranks share them."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._flat: list[torch.Tensor] | None = None
        self._views: dict[str, torch.Tensor] = {}
        self.model.register_post_partition_hook(lambda model: self._show())

    @property
    def ds_param_shard_group(self) -> dist.ProcessGroup:
        """The ranks that share parameters."""
        return state.shard_process_group

    @property
    def fp32_partitioned_groups_flat(self) -> list[torch.Tensor]:
        """For each group of parameters this rank's parts, one behind the other, in f32.

        Ask before the first step. They are copies, made when parameters are divided and brought up
        to date by step(); zeros for what another rank of the pipeline has.
        """
        if self._flat is None:
            self._flat = [self._flat_of(group["params"]) for group in self.param_groups]
        return self._flat

    def step(self, *arguments: Any, **named: Any) -> Any:
        result = super().step(*arguments, **named)
        self._show()
        return result

    @torch.no_grad()
    def _show(self) -> None:
        for name, one in zip(self._names(), self._parameters()) if self._views else ():
            self._views[name].copy_(one)

    def _flat_of(self, parameters: list[torch.nn.Parameter]) -> torch.Tensor:
        parts = [one.ds_tensor for one in parameters]
        lengths = [one.ds_numel for one in parts]
        flat = torch.zeros(sum(lengths), dtype=torch.float32)
        self._views |= {one.name: view for one, view in zip(parts, flat.split(lengths))}
        return flat
