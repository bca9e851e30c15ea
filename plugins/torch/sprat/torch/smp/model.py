"""DistributedModel: a module tree that is cut over the ranks of a pipeline at its first step."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn

from .gradients import Gradients
from .placement import CommGroup
from .server.remote import run_remotely
from .server.server import Server
from .server.tasks import current
from .server.wire import Wire
from .split import (
    Split,
    read_partition,
    split_automatically,
    split_by_hand,
    together,
    write_partition,
)
from .state import state
from .tracing import Traces, trace, tree_of

log = logging.getLogger(__name__)
_latest: DistributedModel | None = None


class _Captured(BaseException):
    """Carries what the model was first called with out of the step's body."""

    def __init__(self, args: tuple, kwargs: dict):
        super().__init__()
        self.args, self.kwargs = args, kwargs


class DistributedModel(nn.Module):
    """Wraps the user's module, whose code stays as it is.

    One per program. Every rank makes it with the same module, in the same values on the ranks of
    one pipeline. The first step decides which rank has which module; then each keeps its own
    parameters, and parameters() gives those. Forward and backward are called in @smp.step.

    trace_device: taken and not needed, since tracing computes nothing.
    trace_execution_times, trace_memory_usage: the first micro-batch runs once, for seconds instead
    of FLOPs, and for the bytes that autograd keeps instead of those that modules return.
    overlapping_allreduce, gradient_as_bucket_view: taken; gradients are summed after the step.
    average_grads_across_microbatches: the mean over micro-batches, else the sum.
    backward_passes_per_step: steps whose gradients add up before data parallel ranks take their
    mean; .grad has them after the last of these steps.
    bucket_cap_mb: MiB of gradients that travel at once. broadcast_buffers: from data parallel rank
    0, at each step in training.
    """

    def __init__(
        self,
        module: nn.Module,
        trace_device: str = "cpu",
        trace_execution_times: bool = False,
        overlapping_allreduce: bool = True,
        backward_passes_per_step: int = 1,
        average_grads_across_microbatches: bool = True,
        bucket_cap_mb: float = 25,
        trace_memory_usage: bool = False,
        broadcast_buffers: bool = True,
        gradient_as_bucket_view: bool = False,
    ):
        super().__init__()
        if state.hybrid_shard_degree > 1:
            raise ValueError(
                f"DistributedModel keeps whole parameters on each data parallel rank, and "
                f"{state.hybrid_shard_degree} ranks are to share them: set "
                "sharded_data_parallel_degree (v2: hybrid_shard_degree) to 1, or use smp.shard"
            )
        if state.tensor_parallel_degree > 1:
            raise ValueError(
                f"tensor_parallel_degree = {state.tensor_parallel_degree}: DistributedModel does "
                "not cut layers yet; use parallelize_module over state.mesh['tensor'] and smp.shard"
            )
        global _latest
        _latest = self
        self.module = module
        self.microbatches: int = state.config.get("microbatches", 1)
        self.assignment: dict[str, int] = {}
        self._average = average_grads_across_microbatches
        self._passes = backward_passes_per_step
        self._bucket_bytes = int(bucket_cap_mb * 2**20)
        self._broadcast_buffers = broadcast_buffers
        self._steps = 0
        self._after_split: list[Callable[[nn.Module], None]] = []
        self._traces = Traces(trace_execution_times, trace_memory_usage)
        self._capturing = False
        self._server: Server | None = None

    # What scripts call.

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's output. Where the root is, in @smp.step; outside of one for evaluation."""
        if self._capturing:
            raise _Captured(args, kwargs)
        if current() is not None:
            return self.module(*args, **kwargs)
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the model was called outside of a step: put the call and model.backward(loss) in "
                "a function with @smp.step, or evaluate under torch.no_grad()"
            )
        from .step import evaluate

        return evaluate(self, args, kwargs)

    def backward(self, loss: torch.Tensor) -> None:
        """Instead of loss.backward(), in @smp.step, once for each micro-batch."""
        if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
            raise ValueError(
                f"model.backward got {_describe(loss)}: a loss computed from the model's output, "
                "with gradients on, has a path back to its parameters"
            )
        if self._server is None or current() is None:
            raise RuntimeError("model.backward(loss) belongs in a function with @smp.step")
        self._server.turn_backward()
        torch.autograd.backward(loss)

    def register_post_partition_hook(self, hook: Callable[[nn.Module], None]) -> None:
        """Called with this model once, after the split, before the first step."""
        self._after_split.append(hook)

    def local_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Those that this rank keeps, by their names in the user's module."""
        for name, parameter in self.module.named_parameters():
            if self.is_local(name):
                yield name, parameter

    def local_parameters(self) -> Iterator[nn.Parameter]:
        return (parameter for _, parameter in self.local_named_parameters())

    def named_parameters(self, *_: Any, **__: Any) -> Iterator[tuple[str, nn.Parameter]]:
        return self.local_named_parameters()

    def is_local(self, name: str) -> bool:
        """Whether this rank keeps the parameter, buffer or module of that name."""
        return not self.assignment or self._owner(name) == self._rank()

    def local_state_dict(self) -> dict[str, Any]:
        """This rank's parameters and buffers, by their names in the user's module."""
        return {k: v for k, v in self.module.state_dict().items() if self.is_local(k)}

    def state_dict(self, *_: Any, gather_to_rank0: bool = True, **__: Any) -> dict[str, Any]:
        """All parameters and buffers; with gather_to_rank0 on pp_rank 0, elsewhere {}.

        The ranks of a pipeline call it together.
        """
        if not self.assignment:
            return self.module.state_dict()
        parts: list[Any] = [None] * self._size()
        if not gather_to_rank0:
            dist.all_gather_object(parts, self.local_state_dict(), group=self._group())
        elif self._rank() == 0:
            dist.gather_object(self.local_state_dict(), parts, group=self._group(), group_dst=0)
        else:
            dist.gather_object(self.local_state_dict(), group=self._group(), group_dst=0)
            return {}
        whole = {key: value for part in parts for key, value in part.items()}
        return {key: whole[key] for key in self.module.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True,
                        same_partition_load: bool = False) -> None:
        """From a whole state, or from this rank's where same_partition_load is true."""
        if self.assignment:
            wanted = [key for key in self.module.state_dict() if self.is_local(key)]
            missing = [key for key in wanted if key not in state_dict]
            if strict and missing:
                raise KeyError(
                    f"rank {self._rank()} of the pipeline: the state lacks {missing[0]!r} and "
                    f"{len(missing) - 1} more; a state of one rank goes with the same partition"
                )
            state_dict = {key: state_dict[key] for key in wanted if key in state_dict}
            strict = False
        self.module.load_state_dict(state_dict, strict=strict)

    # What the step calls.

    def split(self, first_call: Callable[[], None]) -> None:
        """Collective over the pipeline: decides, keeps, drops. first_call calls the model once."""
        if self.assignment:
            return
        self._require_same_model()
        decision: list[Any] = [None]
        if self._rank() == 0:
            decision = [self._decide(first_call)]
        dist.broadcast_object_list(decision, group=self._group(), group_src=0)
        if isinstance(decision[0], Exception):
            raise decision[0]
        self.assignment = together(decision[0], self.module).owners
        if state.config.get("partition_file") and not state.config.get("load_partition"):
            if self._rank() == 0 and state.rank == 0:
                write_partition(state.config["partition_file"], Split(self.assignment),
                                self.module, self._size())
        self._keep_own()
        self._start_server()
        self.gradients = Gradients(self.local_parameters())
        self._equalise()
        for hook in self._after_split:
            hook(self)

    def begin_step(self) -> int:
        """Returns the step's number. ValueError if the model is not what was split."""
        here = [name for name, _ in self.module.named_parameters()]
        if here != self._names:
            changed = next(iter(set(here) ^ set(self._names)), "their order")
            raise ValueError(
                f"rank {self._rank()} of the pipeline: parameters changed after the split "
                f"({changed}): make the whole model before its first step"
            )
        group = state.groups[CommGroup.DP_GROUP]
        if self._broadcast_buffers and self.training and dist.get_world_size(group) > 1:
            for name, buffer in self.module.named_buffers():
                if self.is_local(name):
                    dist.broadcast(buffer, group=group, group_src=0)
        self.gradients.begin()
        return self._steps + 1

    def refuse(self, error: Exception) -> NoReturn:
        """Raises; after the split on the other ranks of the pipeline too, which else would wait."""
        if self._server is not None:
            self._server.refuse(error)
        raise error

    def end_step(self) -> None:
        self._steps += 1  # steps that ended: one that a rank refused counts on none
        divisor = self.microbatches if self._average else 1
        if self._steps % self._passes > 0:
            self.gradients.keep(divisor)
        else:
            self.gradients.end(divisor, state.groups[CommGroup.DP_GROUP], self._bucket_bytes)

    @property
    def server(self) -> Server:
        assert self._server is not None
        return self._server

    # How it is cut.

    def _decide(self, first_call: Callable[[], None]) -> Split | Exception:
        config, partitions = state.config, self._size()
        try:
            if partitions == 1:
                return Split({"": 0})
            if config.get("load_partition"):
                return read_partition(config["partition_file"], self.module, partitions)
            if not config.get("auto_partition", True):
                return split_by_hand(self.module, config.get("default_partition", 0), partitions)
            costs = None
            if not config.get("skip_tracing"):
                captured = self._capture(first_call)
                costs = trace(self.module, captured.args, captured.kwargs, self._traces)
            tree = tree_of(self.module, costs)
            return split_automatically(
                tree, partitions, config.get("optimize", "memory"), config["memory_weight"]
            )
        except Exception as error:  # told to every rank of the pipeline, and raised there
            return error

    def _capture(self, first_call: Callable[[], None]) -> _Captured:
        kept = torch.get_rng_state()
        self._capturing = True
        try:
            first_call()
        except _Captured as captured:
            return captured
        finally:
            self._capturing = False
            torch.set_rng_state(kept)
        raise ValueError("the function with @smp.step does not call the model")

    def _keep_own(self) -> None:
        """Drops what other ranks have, and puts calls to them in the place of their forwards."""
        rank = self._rank()
        self._names = [name for name, _ in self.module.named_parameters()]
        for name, inside in self.module.named_modules():
            owner = self._owner(name)
            if owner == rank:
                continue
            for key, parameter in inside.named_parameters(recurse=False):
                self._drop(parameter, f"{name}.{key}" if name else key, owner)
            # Code of any module that stands here may call it: a list around it calls nothing.
            inside.forward = functools.partial(self._ask, name)
        if self._size() > 1 and getattr(getattr(self.module, "config", None), "use_cache", False):
            log.warning("use_cache of the model's config is set to False: a cache that another "
                        "rank's modules change would be lost")
            self.module.config.use_cache = False

    def _drop(self, parameter: nn.Parameter, name: str, owner: int) -> None:
        """One number stands for all: whoever computes with it, computes NaN."""
        filler = torch.zeros((), dtype=parameter.dtype)
        if filler.is_floating_point():
            filler.fill_(float("nan"))
        parameter.data = filler.expand(parameter.shape)
        parameter.grad = None
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(
                functools.partial(self._misused, name, owner)
            )

    def _misused(self, name: str, owner: int, parameter: nn.Parameter) -> None:
        parameter.grad = None
        raise RuntimeError(
            f"parameter {name!r} is rank {owner}'s and was used on rank {self._rank()} of the "
            "pipeline, outside of its module's forward: keep the two together by smp.partition"
        )

    def _ask(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return run_remotely(self.server, name, args, kwargs)

    def _start_server(self) -> None:
        ranks = dist.get_process_group_ranks(self._group())
        wire = Wire(dist.new_group(ranks, use_local_synchronization=True))
        modules = dict(self.module.named_modules())
        owners = {name: self._owner(name) for name in modules}
        active = state.config.get("active_microbatches", self._size() + 2)
        self._server = Server(wire, modules, owners, state.config.get("pipeline", "interleaved"),
                              active)
        self._server.on_finished = lambda microbatch: self.gradients.finish(microbatch)

    def _equalise(self) -> None:
        """Data parallel ranks begin with the values of their first."""
        group = state.groups[CommGroup.DP_GROUP]
        if dist.get_world_size(group) == 1:
            return
        with torch.no_grad():
            for name, value in [*self.module.named_parameters(), *self.module.named_buffers()]:
                if self.is_local(name):
                    dist.broadcast(value, group=group, group_src=0)

    def _require_same_model(self) -> None:
        mine = [(name, tuple(p.shape), str(p.dtype)) for name, p in self.module.named_parameters()]
        all_of_them: list[Any] = [None] * self._size()
        dist.all_gather_object(all_of_them, mine, group=self._group())
        for rank, theirs in enumerate(all_of_them):
            if theirs != all_of_them[0]:
                pairs = zip([*all_of_them[0], None], [*theirs, None])
                first = next(pair for pair in pairs if pair[0] != pair[1])
                raise ValueError(
                    f"ranks 0 and {rank} of the pipeline have different models: {first[0]} and "
                    f"{first[1]}; every rank makes the same"
                )

    def _owner(self, name: str) -> int:
        return Split(self.assignment).owner_of(name)

    def _group(self) -> dist.ProcessGroup:
        return state.groups[CommGroup.PP_GROUP]

    def _rank(self) -> int:
        return dist.get_rank(self._group())

    def _size(self) -> int:
        return dist.get_world_size(self._group())


def latest_model() -> DistributedModel:
    """The program's model. RuntimeError before it is made."""
    if _latest is None:
        raise RuntimeError("make smp.DistributedModel(model) before the first step")
    return _latest


def _describe(loss: Any) -> str:
    if isinstance(loss, torch.Tensor):
        return f"a tensor of shape {tuple(loss.shape)} that needs no gradient"
    return f"a {type(loss).__name__}"
