"""DistributedModel: a module tree that is cut over the ranks of a pipeline at its first step."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join, Joinable
from torch.distributed.device_mesh import DeviceMesh
from torch.utils import _pytree as pytree
from torch.utils.hooks import RemovableHandle

from .activation_store import ActivationCounters, ActivationStore
from .backends import backend_of, new_group
from .comm_hooks import CommHook, HookedMeans
from .cutting import forget_cache, keep_own, require_same_model
from .delayed import has_delayed, make_values
from .faults.agreement import failure_text, require_all
from .faults.held_tree import HeldTree
from .faults.loss_path import require_roots, require_way_back
from .gradients import Gradients
from .joining import Shadow
from .model_values import ModelValues
from .offload import require_cpu
from .placement import CommGroup
from .recomputation import offload_inputs
from .server.meetings import Meetings
from .server.remote import run_remotely
from .server.server import Server, StepFailed
from .server.tasks import current
from .server.wire import Wire
from .sharding import require_not_sharded
from .shards.blocks import BlockShards, local_blocks
from .shards.parameters import ParameterShards
from .split import (
    Split,
    read_partition,
    split_at_operations,
    split_automatically,
    split_by_hand,
    together,
    write_partition,
)
from .stages.capture import Recorder
from .stages.program import Unservable
from .stages.runner import FirstCut, Stages, cut_first
from .state import state
from .tensor import regions
from .tensor.cut_parameters import dim_of
from .tensor.distributed_module import outermost
from .tensor.marks import distribute
from .tracing import Traces, trace, tree_of

log = logging.getLogger(__name__)
_latest: DistributedModel | None = None
# In a state: it is one rank's part.
PARTIAL = "_smp_is_partial"
# Groups that connect all ranks, one after the other.
_ALL = (CommGroup.MP_GROUP, CommGroup.RDP_GROUP)


class _Captured(BaseException):
    """Carries what the model was first called with out of the step's body."""

    def __init__(self, args: tuple, kwargs: dict):
        super().__init__()
        self.args, self.kwargs = args, kwargs


class DistributedModel(nn.Module, Joinable):
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
    split_at: "modules", or "operations": the step is captured as a graph, and cut where the fewest
    bytes go between ranks; such a model is trained and evaluated by steps that stages can play.
    shard_at: where replicas share parameters (sharded_data_parallel_degree), when they are gathered:
    "step", all of a rank's at each step's start; "blocks", those of the members of the model's
    outermost nn.ModuleLists by PyTorch's fully_shard, when a block begins, and the rest as before.
    offload_folder: where inputs of checkpointed layers lie between forward and backward, with
    offload_activations in the configuration; by default where temporary files are (TMPDIR).
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
        offload_folder: str | os.PathLike | None = None,
        split_at: str = "modules",
        shard_at: str = "step",
    ):
        nn.Module.__init__(self)
        Joinable.__init__(self)
        if state.config.get("bf16"):
            raise ValueError(
                "bf16 is smp.shard's: under DistributedModel compute under torch.autocast, or set fp16"
            )
        if split_at not in ("modules", "operations"):
            raise ValueError(f"split_at = {split_at!r}: take modules or operations")
        if split_at == "operations" and state.config.get("static_mode") is False:
            raise ValueError("split_at = 'operations' needs stages: leave static_mode = false out")
        require_not_sharded(module)
        self._shards_blocks = _shards_blocks(shard_at, split_at)
        self._block_group: dist.ProcessGroup | None = None  # where it is not one of state's
        global _latest
        _latest = self
        self.module = distribute(module)
        self.microbatches: int = state.config.get("microbatches", 1)
        self.assignment: dict[str, int] = {}
        self._split = Split({})
        self._unsplit = ""  # why there is no split, where one was begun
        self._average = average_grads_across_microbatches
        self._passes = backward_passes_per_step
        self._bucket_bytes = int(bucket_cap_mb * 2**20)
        self._broadcast_buffers = broadcast_buffers
        self._steps = 0
        self._uneven = False  # within join()
        self.values = ModelValues(dict(self.module.named_parameters()))
        self._comm_hook: CommHook | None = None
        self._after_split: dict[int, Callable[[nn.Module], None]] = OrderedDict()
        self._at_split: list[Callable[[DistributedModel], None]] = []
        self.loss_scale = 1.0  # of DistributedOptimizer
        self.kept_split: Split | None = None  # of a checkpoint, instead of a new one
        self._own_batches = (
            state.tensor_parallel_degree > 1 and state.config.get("prescaled_batch") is False
        )
        self.shards: ParameterShards | None = None
        self.updates_shards = False  # whether an optimizer knows of them
        self._store = self._make_store(offload_folder)
        offload_inputs(self._store)
        self._half = bool(state.config.get("fp16"))
        if self._half:
            self.module.half()
        self._traces = Traces(trace_execution_times, trace_memory_usage)
        self._split_at = split_at
        self._capturing = False
        self._tracing = False
        self.recorder: Recorder | None = None  # while a step is captured
        self.stages: Stages | None = None
        self.first_cut: FirstCut | None = None  # until stages take it
        self._server: Server | None = None

    # What scripts call.

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's output. Where the root is, in @smp.step; outside of one for evaluation."""
        if self._capturing:
            if self._half:
                args, kwargs = _floats_to((args, kwargs), torch.float16)
            raise _Captured(args, kwargs)
        if self.recorder is not None:
            return self.recorder.call(args, kwargs)
        if current() is not None:
            return self.compute(args, kwargs)
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the model was called outside of a step: put the call and model.backward(loss) in "
                "a function with @smp.step, or evaluate under torch.no_grad()"
            )
        from .step import evaluate

        return evaluate(self, args, kwargs)

    def backward(self, tensors: torch.Tensor | Sequence[torch.Tensor],
                 grad_tensors: torch.Tensor | Sequence[torch.Tensor | None] | None = None) -> None:
        """Instead of torch.autograd.backward(), in @smp.step, once for each micro-batch.

        tensors: the loss, or tensors of any shapes with their gradients.
        """
        if self.recorder is not None:
            return self.recorder.backward(tensors, grad_tensors)
        roots = [tensors] if isinstance(tensors, torch.Tensor) or tensors is None else list(tensors)
        given = [grad_tensors] if isinstance(grad_tensors, torch.Tensor) else list(grad_tensors or [None] * len(roots))
        task = current()
        if self._server is None or task is None:
            raise RuntimeError("model.backward(loss) belongs in a function with @smp.step")
        require_roots(roots, given)
        if self._steps == 0 and task.microbatch == 0 and not self._shards_blocks:  # later ones do alike
            require_way_back(roots, self.module)
        self._server.turn_backward()
        if self._store is not None:
            self._store.begin_backward()
        torch.autograd.backward(
            roots if self.loss_scale == 1 else [one * self.loss_scale for one in roots], given)

    def get_module(self) -> nn.Module:
        """The user's module."""
        return self.module

    @property
    def partitioned(self) -> bool:
        """Whether the first step has split it."""
        return bool(self.assignment)

    def register_post_partition_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Called once, after the split, before the first step: hook(model, optimizer), or (model).

        optimizer: the program's DistributedOptimizer, or None. What is returned has remove().
        """
        takes = len(inspect.signature(hook).parameters)

        def call(model: nn.Module) -> None:
            from .optimizer import latest_optimizer

            hook(model, latest_optimizer()) if takes > 1 else hook(model)

        handle = RemovableHandle(self._after_split)
        self._after_split[handle.id] = call
        return handle

    def when_split(self, hook: Callable[[DistributedModel], None]) -> None:
        """As register_post_partition_hook, before its hooks; at once if it is split."""
        if self.assignment:
            hook(self)
        else:
            self._at_split.append(hook)

    def local_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Those that this rank keeps, by their names in the user's module."""
        for name, parameter in self.module.named_parameters():
            if self.is_local(name):
                yield name, parameter

    def local_parameters(self) -> Iterator[nn.Parameter]:
        return (parameter for _, parameter in self.local_named_parameters())

    def local_named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        return ((k, v) for k, v in self.module.named_buffers() if self.is_local(k))

    def local_buffers(self) -> Iterator[torch.Tensor]:
        return (buffer for _, buffer in self.local_named_buffers())

    def local_named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        return ((k, v) for k, v in self.module.named_modules() if self.is_local(k))

    def local_modules(self) -> Iterator[nn.Module]:
        return (module for _, module in self.local_named_modules())

    def local_values(self) -> Iterator[torch.Tensor]:
        """Parameters and buffers, as data parallel ranks exchange them."""
        return (one.detach() for one in (*self.local_parameters(), *self.local_buffers()))

    def named_parameters(self, *_: Any, **__: Any) -> Iterator[tuple[str, nn.Parameter]]:
        return self.local_named_parameters()

    @property
    def is_split_at_operations(self) -> bool:
        """Whether ranks have parameters of their own, not modules."""
        return self._split.at_operations

    def is_local(self, name: str) -> bool:
        """Whether this rank keeps the parameter, buffer or module of that name."""
        return not self.assignment or self.owner(name) == self._rank()

    def local_state_dict(self) -> dict[str, Any]:
        """This rank's parameters and buffers, by their names in the user's module, and PARTIAL, as SMP marks it.

        Of a parameter that is cut over tensor parallel ranks this rank's slice.
        """
        return self.own_state() | {PARTIAL: True}

    def own_state(self) -> dict[str, Any]:
        """As local_state_dict(), without its mark."""
        if self.shards is not None:
            return self.shards.module_state(self.module, self.is_local)
        return {k: v for k, v in self.module.state_dict().items() if self.is_local(k)}

    def state_dict(self, *_: Any, destination: dict[str, Any] | None = None, prefix: str = "",
                   gather_to_rank0: bool = True, **__: Any) -> dict[str, Any]:
        """All parameters and buffers; with gather_to_rank0 on pp_rank 0, elsewhere none.

        The ranks of one copy of the model call it together. `destination` and `prefix` are what a module around this
        one gives: names with that prefix are added to that dictionary, which is returned.
        """
        whole = {prefix + name: value for name, value in self._whole_state(gather_to_rank0).items()}
        if destination is None:
            return whole
        destination.update(whole)
        return destination

    def _whole_state(self, gather_to_rank0: bool) -> dict[str, Any]:
        own = {name: self.values.whole(name, one) for name, one in self.own_state().items()}
        if not self.assignment:
            return own
        parts: list[Any] = [None] * self._size()
        if not gather_to_rank0:
            dist.all_gather_object(parts, own, group=self._group())
        elif self._rank() == 0:
            dist.gather_object(own, parts, group=self._group(), group_dst=0)
        else:
            dist.gather_object(own, group=self._group(), group_dst=0)
            return {}
        whole = {key: value for part in parts for key, value in part.items()}
        return {key: whole[key] for key in self.module.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True,
                        same_partition_load: bool = False) -> None:
        """From a whole state, or from this rank's local_state_dict().

        Before the split the ranks of one pipeline put local ones together, so they call it together.
        same_partition_load: taken.
        """
        partial = bool(state_dict.get(PARTIAL, False))
        state_dict = {key: value for key, value in state_dict.items() if key != PARTIAL}
        if partial and not self.assignment:
            parts: list[Any] = [None] * self._size()
            dist.all_gather_object(parts, state_dict, group=self._group())
            state_dict = {key: value for part in parts for key, value in part.items()}
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
        values = {key: self.values.part(key, value) for key, value in state_dict.items()}
        if self.shards is None:
            self.module.load_state_dict(values, strict=strict)
        else:
            self.shards.load_module_state(self.module, values, strict)

    # Tensor parallelism.

    def distributed_modules(self) -> list[nn.Module]:
        """The outermost layers that are cut over tensor parallel ranks."""
        return list(outermost(self.module)) if regions.ranks() > 1 else []

    def is_distributed_parameter(self, parameter: nn.Parameter) -> bool:
        """Whether each tensor parallel rank has a slice of it."""
        return dim_of(parameter) is not None

    def is_distributed_buffer(self, buffer: torch.Tensor) -> bool:
        """False: tensor parallel ranks have whole buffers."""
        return False

    def is_scaled_batch_buffer(self, buffer: torch.Tensor) -> bool:
        """As is_scaled_batch_parameter()."""
        return any(one is buffer for layer in self.distributed_modules() for one in layer.buffers())

    def is_scaled_batch_parameter(self, parameter: nn.Parameter) -> bool:
        """Whether it is of a layer that works on the batches of all tensor parallel ranks."""
        return id(parameter) in self._scaled_batch_parameters()

    def scaled_batch_reducer_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Of this rank's, those whose ranks with the same values are its RDP_GROUP."""
        scaled = self._scaled_batch_parameters()
        return ((name, one) for name, one in self.local_named_parameters() if id(one) in scaled)

    def default_reducer_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The others: their DP_GROUP has the same values."""
        scaled = self._scaled_batch_parameters()
        return ((name, one) for name, one in self.local_named_parameters() if id(one) not in scaled)

    def _scaled_batch_parameters(self) -> set[int]:
        return {id(one) for layer in self.distributed_modules() for one in layer.parameters()}

    def cpu(self) -> DistributedModel:
        """Whole on every rank: what other ranks keep is copied here, for a look or an export.

        The ranks of a pipeline call it together. Later steps change each rank's own alone.
        """
        whole = self.state_dict(gather_to_rank0=False)
        for name, parameter in self.module.named_parameters():
            if not self.is_local(name):
                parameter.data = whole[name].clone()
        for name, buffer in self.module.named_buffers():
            if not self.is_local(name) and name in whole:
                buffer.data = whole[name].clone()
        return self

    def register_comm_hook(self, state: Any, hook: Callable[[Any, Any], Any]) -> None:
        """As DistributedDataParallel's: gives each bucket of gradients its mean over replicas.

        Every rank registers it. state: given to the hook; None: the group of the replicas.
        """
        self._comm_hook = CommHook(state, hook)
        self.when_split(DistributedModel._take_comm_hook)

    def _take_comm_hook(self) -> None:
        replicas = state.groups[CommGroup.RDP_GROUP]
        if self._comm_hook is not None and dist.get_world_size(replicas) > 1:
            self.gradients.hook = HookedMeans(self._comm_hook, replicas)

    # Uneven numbers of batches.

    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True,
             throw_on_early_termination: bool = False) -> Join:
        """Around the loop over batches: data parallel ranks may have more of them than others.

        After the first step. Gradients are divided by all replicas, those that are done count as
        zeros; in the end all have the values of one that took every step.
        """
        if not divide_by_initial_world_size:
            raise ValueError(
                "join(divide_by_initial_world_size=False) divides by replicas that still have "
                "batches, which is not served: give weights to the loss instead"
            )
        if not self.assignment:
            raise ValueError("join: the model is not split yet: take one step first")
        if self._shards_blocks:
            raise ValueError("join goes with shard_at = 'step': a replica without batches begins no block")
        self._uneven = enable
        return Join([self], enable, throw_on_early_termination)

    def join_hook(self, **_: Any) -> Shadow:
        return Shadow(self, self.join_process_group)

    @property
    def join_device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def join_process_group(self) -> dist.ProcessGroup:
        return state.groups[CommGroup.RDP_GROUP]

    def end_join(self) -> None:
        """All replicas have come to the end of their batches."""
        self._uneven = False

    @property
    def updating(self) -> tuple[CommGroup, ...]:
        """What connects the ranks that call optimizer.step() together: in join() a replica may be done."""
        return (CommGroup.MP_GROUP,) if self._uneven else _ALL

    def shadow_step(self) -> None:
        """What end of batches leaves of begin_step() and end_step(): the sums with replicas."""
        if self.shards is not None:
            self.shards.gather()
            self.shards.release()
        self._spread_buffers()
        self.require_replicas(None, trains=True)
        if self._ends_passes:
            self._on_copy(lambda: self.gradients.shadow(state.groups[CommGroup.RDP_GROUP], self._bucket_bytes))
        self._steps += 1

    # What the step calls.

    def refuse_split(self, error: Exception) -> None:
        """Instead of split() on a rank that cannot take part: raises on all, unless there is a split."""
        self._require_no_half_split()
        if not self.assignment:
            require_all(error, _ALL)

    def split(self, first_call: Callable[[], None]) -> None:
        """Collective over all ranks: decides, keeps, drops. first_call calls the model once.

        What goes wrong before a rank has dropped anything is raised on all, and a later step may split.
        """
        self._require_no_half_split()
        if self.assignment:
            return
        require_all(None, _ALL)  # another rank may refuse its batch
        for kind in (CommGroup.PP_GROUP, CommGroup.RDP_GROUP):
            self._on_all(lambda: require_same_model(self.module, self._options, state.groups[kind]))
        split = together(self._decided(first_call), self.module)
        self._on_all(lambda: self._write(split))
        self._split = split
        self.assignment = self._split.owners
        # Asked while other ranks' modules are here too, for all ranks draw one seed or none does.
        delayed = has_delayed(self.module)
        seed = self._seed() if delayed else 0
        self._on_all_or_never(lambda: self._take_own(delayed, seed))
        self._start_server()
        self.values = ModelValues(dict(self.module.named_parameters()))
        self.gradients = Gradients(self.local_parameters())
        self._start_stages()
        self._equalise()
        if state.hybrid_shard_degree > 1:
            self._share()
        self._held = HeldTree(self.module)
        self._on_all_or_never(self._call_hooks)

    def _decided(self, first_call: Callable[[], None]) -> Split:
        """By the first rank of the copy; what goes wrong there, whatever it is, is raised on all ranks."""
        error: BaseException | None = None
        decision: list[Any] = [None]
        model_ranks = state.groups[CommGroup.MP_GROUP]
        if dist.get_rank(model_ranks) == 0:
            self._tracing = True
            try:
                with regions.alone():
                    decision = [self._decide(first_call)]
            except BaseException as one:
                error, decision = one, [failure_text(one)]
            finally:
                self._tracing = False
        dist.broadcast_object_list(decision, group=model_ranks, group_src=0)
        if error is None and isinstance(decision[0], str):
            error = StepFailed(decision[0])
        require_all(error, [CommGroup.RDP_GROUP])
        return decision[0]

    @property
    def _options(self) -> dict[str, Any]:
        """What all ranks must have alike, or their collectives would not meet."""
        return {"backward_passes_per_step": self._passes, "average_grads_across_microbatches": self._average,
                "bucket_cap_mb": self._bucket_bytes / 2**20, "broadcast_buffers": self._broadcast_buffers,
                "split_at": self._split_at, "shard_at": "blocks" if self._shards_blocks else "step",
                "register_comm_hook": self._comm_hook is not None}

    def _require_no_half_split(self) -> None:
        if self._unsplit:
            raise RuntimeError(f"the model's split failed, make it anew: {self._unsplit}")

    def _call_hooks(self) -> None:
        for hook in (*self._at_split, *self._after_split.values()):
            hook(self)

    def _take_own(self, delayed: bool, seed: int) -> None:
        if self._size() > 1:
            keep_own(self.module, self.owner, self._rank(), self._ask)
        if delayed:
            make_values(self.module, self.is_local, seed)

    def _write(self, split: Split) -> None:
        wanted = state.config.get("partition_file") and not state.config.get("load_partition")
        if wanted and state.rank == 0:
            write_partition(state.config["partition_file"], split, self.module, self._size())

    def _on_all(self, part: Callable[[], None]) -> None:
        """What a rank does alone, or with some; what one of them says is raised on every rank."""
        error = None
        try:
            part()
        except Exception as one:
            error = one
        require_all(error, _ALL)

    def _on_all_or_never(self, part: Callable[[], None]) -> None:
        """As _on_all(), of what cannot be tried again."""
        try:
            self._on_all(part)
        except Exception as error:
            self._unsplit = failure_text(error)
            raise RuntimeError(self._unsplit) from error

    def begin_step(self, trains: bool = True, wrong: Exception | None = None) -> int:
        """Returns the step's number. On all ranks of the pipeline an error if one of them cannot take part.

        wrong: why this one cannot.
        """
        wrong = wrong or self._wrong(trains)
        # What replicas do together comes first: those that have nothing against the step are in it already.
        if trains:
            Join.notify_join_context(self)
        if self.shards is not None and not self._has_ended(CommGroup.SHARD_GROUP):
            self.shards.gather()
        if not self._has_ended(CommGroup.RDP_GROUP):
            self._spread_buffers()
        if wrong is not None:
            (self.server if self.stages is None else self.stages).refuse(wrong)
        self.gradients.begin()
        return self._steps + 1

    def _has_ended(self, kind: CommGroup) -> bool:
        """All of its ranks answer alike."""
        return self.server.meetings.has_ended(dist.get_process_group_ranks(state.groups[kind]))

    def _wrong(self, trains: bool) -> ValueError | None:
        """Why the next step cannot be: the model is not what was split, or a group has ended."""
        try:
            self.server.meetings.require_whole()
        except ValueError as error:
            return error
        changed = self._held.change()
        if changed:
            return ValueError(
                f"rank {self._rank()} of the pipeline: parameters changed after the split ({changed}): make the whole "
                "model before its first step, and change values in place, as load_state_dict does"
            )
        lost = self.shards.lost_values() if self.shards is not None else ""
        if lost:
            return ValueError(
                f"rank {state.rank}: values were given to parameter {lost!r}, which ranks share: give them within "
                "model.whole_parameters(), or by model.load_state_dict"
            )
        if trains and self.shards is not None and not self.updates_shards:
            return ValueError(
                f"rank {state.rank}: {state.hybrid_shard_degree} ranks share each parameter, and only "
                "smp.DistributedOptimizer updates parts: wrap the optimizer in it before the first step"
            )
        return None

    def require_replicas(self, error: BaseException | None, trains: bool) -> None:
        """The end of a step before gradients are summed: raises its error, or one of another replica's.

        Replicas evaluate each for itself. Where they share blocks, their servers have told each other.
        """
        require_all(error, [CommGroup.RDP_GROUP] if trains and not self._shards_blocks else [])

    def end_evaluation(self) -> None:
        """Instead of end_step() where nothing goes back; also of a step that failed."""
        self.gradients.forget()
        if self._store is not None:
            self._store.end_step()
        if self.shards is not None:
            self.shards.release()

    def end_step(self) -> None:
        if self._store is not None:
            self._store.end_step()
        if self.shards is not None:
            self.shards.release()
        divisor = self.microbatches if self._average else 1
        # The losses of tensor ranks' own batches are parts of one mean.
        divisor *= regions.ranks() if self._own_batches else 1
        if self._ends_passes:
            replicas = state.groups[CommGroup.RDP_GROUP]
            self._on_copy(lambda: self.gradients.add_up(divisor, replicas, self._bucket_bytes))
            self.gradients.give()
        else:
            self.gradients.keep(divisor)
        self._steps += 1  # steps that ended: one that a rank refused counts on none

    @property
    def _ends_passes(self) -> bool:
        """Whether the gradients of the step that lasts are summed over replicas."""
        return (self._steps + 1) % self._passes == 0

    def _on_copy(self, sum_gradients: Callable[[], None]) -> None:
        """A hook of communication is the program's code: what it raises on a stage's replicas is raised on all stages."""
        error = None
        try:
            sum_gradients()
        except BaseException as one:
            error = one
        if error is not None or self._comm_hook is not None:
            require_all(error, [CommGroup.MP_GROUP] if self._comm_hook is not None else [])

    @property
    def activations(self) -> ActivationCounters | None:
        """What was offloaded, with offload_activations."""
        return None if self._store is None else self._store.counters

    @property
    def between_passes(self) -> bool:
        """Whether gradients of earlier steps wait for those of the next."""
        return self._steps % self._passes > 0

    @property
    def is_traced(self) -> bool:
        """Whether the step runs to find out what it does, without numbers that count."""
        return self._tracing or self.recorder is not None

    @property
    def server(self) -> Server:
        assert self._server is not None
        return self._server

    def _make_store(self, folder: str | os.PathLike | None) -> ActivationStore | None:
        if not state.config.get("offload_activations"):
            return None
        require_cpu(self.module)
        return ActivationStore(folder, state.config["activation_loading_horizon"])

    def _share(self) -> None:
        if self._comm_hook is not None:
            raise ValueError("register_comm_hook goes with whole parameters: set "
                             "sharded_data_parallel_degree to 1")
        named = dict(self.local_named_parameters())
        groups = self._block_group or state.groups[CommGroup.SHARD_GROUP], state.groups[CommGroup.REPLICATE_GROUP]
        if self._shards_blocks:
            if self._block_group is None:
                mesh = state.mesh["shard" if state.replicas == 1 else ("replicate", "shard")]
            else:
                mesh = DeviceMesh.from_group(self._block_group, state.mesh.device_type, mesh_dim_names=("shard",))
            blocks = local_blocks(self.module, self.is_local)
            self.shards = BlockShards(named, blocks, mesh, *groups)
            self.server.on_paused = self.shards.settle
        else:
            self.shards = ParameterShards(named, *groups)
        self.gradients.shards = self.values.shards = self.shards

    def whole_parameters(self) -> contextlib.AbstractContextManager:
        """Inside, this rank's parameters are whole where ranks share them, to read and to write.

        The ranks that share them enter together.
        """
        return contextlib.nullcontext() if self.shards is None else self.shards.whole()

    def _spread_buffers(self) -> None:
        group = state.groups[CommGroup.RDP_GROUP]
        if self._broadcast_buffers and self.training and dist.get_world_size(group) > 1:
            for buffer in self.local_buffers():
                dist.broadcast(buffer, group=group, group_src=0)

    # How it is cut.

    def _decide(self, first_call: Callable[[], None]) -> Split:
        config, partitions = state.config, self._size()
        if partitions == 1:
            return Split({"": 0})
        if self.kept_split is not None:
            return self.kept_split
        if config.get("load_partition"):
            return read_partition(config["partition_file"], self.module, partitions)
        if self._split_at == "operations":
            return self._decide_at_operations(first_call)
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

    def _decide_at_operations(self, body: Callable[[], None]) -> Split:
        if has_delayed(self.module):
            raise ValueError("split_at = 'operations' goes with parameters that have values: leave "
                             "delay_param_initialization out")
        forget_cache(self.module)
        try:
            self.first_cut = cut_first(self, body, self._size(), state.config.get("optimize", "memory"))
        except Unservable as error:
            raise ValueError(f"split_at = 'operations', and the step is no graph: {error}") from error
        return split_at_operations(self.module, self.first_cut.cut.owners)

    def compute(self, args: tuple, kwargs: dict) -> Any:
        """The output of a call in a step, where the root is."""
        if not self._half:
            return self._of_own_batch(args, kwargs)
        args, kwargs = _floats_to((args, kwargs), torch.float16)
        return _floats_to(self._of_own_batch(args, kwargs), torch.float32)

    def _of_own_batch(self, args: tuple, kwargs: dict) -> Any:
        """Without prescaled_batch tensor ranks bring a batch each: the model gets all of them."""
        if not self._own_batches:
            return self.module(*args, **kwargs)
        args, kwargs = _on_tensors((args, kwargs), lambda one: regions.join_slices(one, 0))
        return _on_tensors(self.module(*args, **kwargs), self._own_rows)

    def _own_rows(self, output: torch.Tensor) -> torch.Tensor:
        if output.dim() == 0 or output.shape[0] % regions.ranks() != 0:
            raise ValueError(
                f"the model returns a tensor of shape {tuple(output.shape)}, which has no part of "
                "each tensor parallel rank's batch: compute the loss outside of the model, or set "
                "prescaled_batch and give tensor parallel ranks the same batch"
            )
        return regions.part(output, 0)

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
        raise ValueError("the function with @smp.step does not call the model: call what smp.DistributedModel returns in "
                         "it, not the module that was given to it")

    def _ask(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return run_remotely(self.server, name, args, kwargs)

    def _start_server(self) -> None:
        ranks = dist.get_process_group_ranks(self._group())
        wire = Wire(new_group(ranks))
        # Ranks whose collectives meet in the midst of a step.
        tensor_ranks = dist.get_process_group_ranks(state.groups[CommGroup.TP_GROUP])
        ranks = tensor_ranks
        if self._shards_blocks:
            ranks = dist.get_process_group_ranks(state.groups[CommGroup.DP_GROUP])
        peers = Wire(new_group(ranks), wire.inbox) if len(ranks) > 1 else None
        modules = dict(self.module.named_modules())
        owners = {name: self.owner(name) for name in modules}
        active = state.config.get("active_microbatches", self._size() + 2)
        self._server = Server(wire, modules, owners, state.config.get("pipeline", "interleaved"),
                              active, peers, [ranks.index(one) for one in tensor_ranks],
                              self._make_meetings())
        self._server.on_finished = lambda microbatch: self.gradients.finish(microbatch)

    def _make_meetings(self) -> Meetings:
        """The groups that tasks of a step meet in, sprat's alone."""
        groups = [state.groups[CommGroup.TP_GROUP]]
        if self._shards_blocks:
            if state.groups[CommGroup.SHARD_GROUP] is dist.group.WORLD:
                # One of its own, since with the world all else would end.
                self._block_group = new_group(list(range(state.world_size)))
            groups += [self._block_group or state.groups[CommGroup.SHARD_GROUP], state.groups[CommGroup.REPLICATE_GROUP]]
        served = {tuple(dist.get_process_group_ranks(one)): backend_of(one) for one in groups
                  if dist.get_world_size(one) > 1}
        return Meetings({ranks: one for ranks, one in served.items() if one.name() == "sprat"})

    def _start_stages(self) -> None:
        at_operations = self._split.at_operations
        wanted = True if at_operations else state.config.get("static_mode")
        if wanted is False or self._size() == 1:
            return
        reason = ("tensor parallel ranks compute together" if regions.ranks() > 1 else
                  "blocks are gathered when they begin" if self._shards_blocks else
                  "activations are offloaded" if self._store is not None else "")
        if reason and wanted:
            setting, remedy = (("split_at is 'operations'", "take split_at = 'modules'") if at_operations else
                               ("static_mode is true", "leave static_mode out"))
            raise ValueError(f"{setting}, and stages cannot play this model, since {reason}: {remedy}")
        if reason:
            log.warning("the execution server runs all steps, since stages cannot: %s", reason)
            return
        group = new_group(dist.get_process_group_ranks(self._group()))
        self.stages = Stages(self, group, bool(wanted))

    def _equalise(self) -> None:
        """Data parallel ranks begin with the values of their first, cut or whole."""
        for one in (*self.local_parameters(), *self.local_buffers()):
            kind = CommGroup.DP_GROUP if dim_of(one) is None else CommGroup.RDP_GROUP
            if dist.get_world_size(state.groups[kind]) > 1:
                dist.broadcast(one.detach(), group=state.groups[kind], group_src=0)

    def _seed(self) -> int:
        """That of rank 0, so that parts of one model belong together."""
        held = [torch.initial_seed()]
        dist.broadcast_object_list(held, src=0)
        return held[0]

    def owner(self, name: str) -> int:
        """The rank of the pipeline that has the module, parameter or buffer."""
        return self._split.owner_of(name)

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


def is_tracing() -> bool:
    """Whether what runs now is not a step, but shows what the model does before one."""
    return _latest is not None and _latest.is_traced


def _shards_blocks(shard_at: str, split_at: str) -> bool:
    """Whether FSDP2 gets blocks. ValueError for what does not go together."""
    if shard_at not in ("step", "blocks"):
        raise ValueError(f"shard_at = {shard_at!r}: take step or blocks")
    if shard_at == "blocks" and (split_at == "operations" or state.config.get("fp16")):
        other = "split_at = 'operations'" if split_at == "operations" else "fp16"
        raise ValueError(f"shard_at = 'blocks' with {other}: take shard_at = 'step'")
    return shard_at == "blocks" and state.hybrid_shard_degree > 1


def _floats_to(value: Any, dtype: torch.dtype) -> Any:
    """With its tensors of floats in that type, and all else as it is."""
    return _on_tensors(value, lambda one: one.to(dtype) if one.is_floating_point() else one)


def _on_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return pytree.tree_map(
        lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf, value
    )
