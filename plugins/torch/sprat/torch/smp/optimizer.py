"""DistributedOptimizer: an optimizer of torch over the parameters that a rank keeps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from .faults.agreement import any_has, on_all
from .loss_scale import LossScale, loss_scale
from .masters import Masters
from .model import PARTIAL, DistributedModel, latest_model
from .placement import CommGroup
from .shards.optimizer_state import OptimizerShards
from .state import state
from .tensor.cut_parameters import dim_of

log = logging.getLogger(__name__)
# What these do with a parameter depends on all of its elements.
OF_WHOLE_PARAMETERS = ("Adafactor", "FusedLamb", "FusedNovoGrad", "LBFGS", "Muon")
_LACKS_UPDATE = ("this rank may lack a part of the update that others have made: load the last checkpoint, or go on "
                 "without that part")
_latest: DistributedOptimizer | None = None


class DistributedOptimizer(torch.optim.Optimizer):
    """Wraps an optimizer over model.parameters(); make it after DistributedModel.

    From the split on it has the parameters of this rank alone. State is kept by parameters' names,
    so what one cut has saved another loads. With `fp16` in the configuration it updates f32 copies,
    and the loss is multiplied by static_loss_scale, or by a scale that follows overflows
    (dynamic_loss_scale, dynamic_loss_args as in loss_scale.py), without it by nothing; a step with gradients that are not
    finite anywhere changes nothing anywhere. Where replicas share parameters step() clips gradients to
    sdp_gradient_clipping, as SMP does. With `shard_optimizer_state` data parallel ranks
    divide the state. Learning rate schedulers take it as they take the optimizer.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        static_loss_scale: float | None = 1.0,
        dynamic_loss_scale: bool = False,
        dynamic_loss_args: dict[str, Any] | None = None,
    ):
        # Not Optimizer.__init__: groups, state and hooks are the wrapped optimizer's.
        global _latest
        self.optimizer = optimizer
        self.model: DistributedModel = latest_model()
        self._require_whole()
        scale = loss_scale(static_loss_scale or 1.0, dynamic_loss_scale, dynamic_loss_args)
        self.loss_scaler = scale if state.config.get("fp16") else LossScale()
        self._global_grad_norm = 0.0  # before clipping, where step() clips; scripts of AWS print it
        self.overflow = False  # whether the last step was left out
        self._masters = Masters([])
        self._shards: OptimizerShards | None = None
        self._taken: bool | None = None  # whether the gradients taken since the last step are finite
        self._pending: dict[str, Any] | None = None
        self.model.loss_scale = self.loss_scaler.scale
        self.model.when_split(self._keep_own)
        _latest = self

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:
        return self.optimizer.state

    @property
    def defaults(self) -> dict[str, Any]:
        return self.optimizer.defaults

    def __repr__(self) -> str:
        return f"DistributedOptimizer({self.optimizer!r})"

    # A training step.

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates this rank's parameters; with fp16 only if gradients are finite on all ranks.

        Every rank of the job calls it. What the wrapped optimizer raises on one is raised on all, at once.
        """
        if not self._finite():
            self._end_step(False)
            log.warning("gradients are not finite: the step is left out, the loss scale is %g",
                        self.loss_scaler.scale)
            return None
        most = state.config.get("sdp_gradient_clipping", 0)
        if self.model.shards is not None and most > 0:
            self._global_grad_norm = self.clip_master_grads(most)
        if hasattr(self.optimizer, "gradient_norm"):  # one of optimizers.py, which clips by it
            self._tell_norm(closure)
        try:
            result = on_all("optimizer.step()", lambda: self._update(closure), _LACKS_UPDATE, self.model.updating)
        except BaseException:
            self._taken = None  # the next step has gradients of its own
            raise
        if self._shards is not None:
            self._shards.spread()
        self._end_step(True)
        return result

    def _tell_norm(self, closure: Callable[[], Any] | None) -> None:
        """It is of all ranks together: where no closure makes other gradients, before one of them alone may fail."""
        norm = None if closure is not None else self._norm(dict(self._named_gradients()))
        self.optimizer.gradient_norm = lambda: (
            self._norm(dict(self._named_gradients())) if norm is None else norm)

    def _update(self, closure: Callable[[], Any] | None) -> Any:
        result = self.optimizer.step(closure)
        self._masters.give_values()
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)
        self._taken = None  # of a step that was left out
        parts = self.model.shards.own.values() if self.model.shards is not None else ()
        for one in (*self.model.local_parameters(), *parts):
            if set_to_none:
                one.grad = None
            elif one.grad is not None:
                one.grad.zero_()

    def clip_master_grads(self, max_norm: float) -> float:
        """Scales gradients of all ranks down to the L2 norm max_norm; returns what it was.

        The norm has the same bits on every rank and under every cut: f64 sums of parameters, added
        in the model's order. -1 where gradients are not finite, and step() then changes nothing.
        Every rank of the job calls it.
        """
        if not self._finite():
            return -1.0
        gradients = dict(self._named_gradients())
        norm = self._norm(gradients)
        if norm > max_norm:
            for gradient in gradients.values():
                gradient.mul_(max_norm / (norm + 1e-6))
        return norm

    # State, by name.

    def local_state_dict(self) -> dict[str, Any]:
        """What this rank has: {"state": {name: ...}, "param_groups": [{"params": [names]}], ...}, and PARTIAL."""
        return self._own_state() | {PARTIAL: True}

    def _own_state(self) -> dict[str, Any]:
        if self._pending is not None:
            return self._pending
        packed, names = self.optimizer.state_dict(), self._names()
        own = {
            "state": {names[index]: value for index, value in packed["state"].items()},
            "param_groups": [
                group | {"params": [names[index] for index in group["params"]]}
                for group in packed["param_groups"]
            ],
            "masters": self._named_masters(),
            "loss_scale": self.loss_scaler.state(),
        }
        return self._on_state(own, self.model.values.gathered)

    def state_dict(self, gather_to_rank0: bool = True) -> dict[str, Any]:
        """The whole state, by name, on pp_rank 0, else {}; everywhere if gather_to_rank0 is false.

        The ranks of one copy of the model call it together, with shard_optimizer_state all of their replicas.
        """
        parts = [self._on_state(self._own_state(), self.model.values.whole)]
        if self.model.assignment:
            if self._shards is not None:
                parts = _everyones(parts, state.groups[CommGroup.RDP_GROUP])
            parts = _everyones(parts, state.groups[CommGroup.PP_GROUP])
            if gather_to_rank0 and dist.get_rank(state.groups[CommGroup.PP_GROUP]) != 0:
                return {}
        return joined(parts, [name for name, _ in self.model.module.named_parameters()])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of state_dict(), of local_state_dict(), or a plain optimizer's over model.parameters().

        Before the split it waits for it. ValueError if the groups are others, KeyError if a
        parameter of this rank is in none of them.
        """
        own_groups, theirs = self.optimizer.param_groups, state_dict["param_groups"]
        if len(own_groups) != len(theirs):
            raise ValueError(
                f"the state has {len(theirs)} groups of parameters, the optimizer {len(own_groups)}"
            )
        named = by_name(state_dict, [name for name, _ in self.model.module.named_parameters()])
        if self.model.assignment:
            self._load(self._on_state(named, self.model.values.share))
        else:
            self._pending = named

    def _load(self, named: dict[str, Any]) -> None:
        names = self._names()
        known = {name for group in named["param_groups"] for name in group["params"]}
        missing = [name for name in names if name not in known]
        if missing:
            raise KeyError(
                f"rank {state.rank}: the optimizer's state lacks {missing[0]!r} and "
                f"{len(missing) - 1} more of this rank's parameters; load the whole state, or that "
                "of the same partition"
            )
        packed = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({
            "state": {i: _copied(named["state"][name]) for i, name in enumerate(names)
                      if name in named["state"]},
            "param_groups": [theirs | {"params": own["params"]}
                             for own, theirs in zip(packed, named["param_groups"])],
        })
        self._masters.take_values()
        with torch.no_grad():
            for name, master in self._named_masters().items():
                if name in named.get("masters", {}):
                    master.copy_(named["masters"][name])
        if "loss_scale" in named:
            self.loss_scaler.restore(named["loss_scale"])
            self.model.loss_scale = self.loss_scaler.scale

    def _on_state(self, named: dict[str, Any], change: Callable[[str, Any], Any]) -> dict[str, Any]:
        """With each value changed, by its parameter's name."""
        states = {name: {key: change(name, value) for key, value in one.items()}
                  for name, one in named["state"].items()}
        masters = {name: change(name, one) for name, one in named.get("masters", {}).items()}
        return {**named, "state": states, "masters": masters}

    # What the split changes.

    def _keep_own(self, model: nn.Module) -> None:
        local = list(self.model.local_parameters())
        if state.config.get("shard_optimizer_state"):
            self._shards = OptimizerShards(local, state.groups[CommGroup.RDP_GROUP])
            local = self._shards.own()
        kept = {id(one) for one in local}
        strangers = {id(one) for one in self.model.module.parameters()} - kept
        if self.model.shards is not None:
            self.model.updates_shards = True
            shards = self.model.shards
            self._replace(strangers, {id(one): shards.own[name]
                                      for name, one in shards.originals.items()})
        else:
            self._replace(strangers, {})
        if state.config.get("fp16"):
            self._masters = Masters([one for one in self._parameters()
                                     if one.dtype == torch.float16])
            self._replace(set(), {id(one): master for one, master in self._masters.pairs})
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._load(self._on_state(pending, self.model.values.share))

    def _require_whole(self) -> None:
        """On every rank, also on those whose own parameters are whole: a step needs all of them."""
        kind = type(self.optimizer).__name__
        cut = any(dim_of(one) is not None for one in self.model.module.parameters())
        if kind in OF_WHOLE_PARAMETERS and (cut or state.hybrid_shard_degree > 1):
            raise ValueError(
                f"{kind} needs whole parameters, and ranks have parts of them: take an optimizer "
                "that works on each element, as AdamW, or degrees of 1 for tensor parallelism and "
                "sharded data parallelism"
            )

    def _replace(self, gone: set[int], others: dict[int, nn.Parameter]) -> None:
        """Leaves parameters out of the groups, or puts others in their place; by id."""
        for group in self.optimizer.param_groups:
            for one in group["params"]:
                if id(one) in gone or id(one) in others:
                    self.optimizer.state.pop(one, None)
            group["params"] = [others.get(id(one), one) for one in group["params"]
                               if id(one) not in gone]

    # Gradients.

    def _finite(self) -> bool:
        """With fp16 takes gradients into the f32 copies, once a step; whether all ranks have finite ones.

        A rank that updates nothing, as of a stage that is frozen, asks too: the others ask it.
        """
        if not state.config.get("fp16"):
            return True
        if self._taken is None:
            finite = self._masters.take_gradients(self.loss_scaler.scale)
            self._taken = not any_has(not finite)
        return self._taken

    def _end_step(self, finite: bool) -> None:
        self._taken = None
        self.overflow = not finite
        self.loss_scaler.update(finite)
        self.model.loss_scale = self.loss_scaler.scale

    def _named_gradients(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in zip(self._names(), self._parameters()):
            if parameter.grad is not None:
                yield name, parameter.grad

    def _norm(self, gradients: dict[str, torch.Tensor]) -> float:
        named = dict(self.model.module.named_parameters())
        shares = state.hybrid_shard_degree if self.model.shards is not None else 1
        place = dist.get_rank(state.groups[CommGroup.SHARD_GROUP]) if shares > 1 else 0
        squares = torch.zeros(state.placement.tensor, shares, len(named), dtype=torch.float64)
        for index, (name, parameter) in enumerate(named.items()):
            # A whole parameter counts once, and of a cut one each tensor rank's slice.
            if name in gradients and (state.tp_rank == 0 or dim_of(parameter) is not None):
                gradient = gradients[name]
                own = gradient.to_local() if isinstance(gradient, DTensor) else gradient
                norm = torch.linalg.vector_norm(own, dtype=torch.float64)
                squares[state.tp_rank, place, index] = norm * norm
        # Each number comes from one rank, so the sum over ranks rounds nothing.
        if self._shards is not None:
            dist.all_reduce(squares, group=state.groups[CommGroup.RDP_GROUP])
        if shares > 1:
            dist.all_reduce(squares, group=state.groups[CommGroup.SHARD_GROUP])
        dist.all_reduce(squares, group=state.groups[CommGroup.MP_GROUP])
        return float(squares.sum((0, 1)).sum().sqrt())

    # Names.

    def _parameters(self) -> list[nn.Parameter]:
        return [one for group in self.optimizer.param_groups for one in group["params"]]

    def _names(self) -> list[str]:
        """Of the groups' parameters in order, as the wrapped optimizer counts them."""
        known = self._known()
        known |= {id(master): known[id(one)] for one, master in self._masters.pairs}
        for one in self._parameters():
            if id(one) not in known:
                raise ValueError(
                    f"the optimizer has a parameter of shape {tuple(one.shape)} that is none of "
                    "the model's: give it an optimizer of its own"
                )
        return [known[id(one)] for one in self._parameters()]

    def _known(self) -> dict[int, str]:
        """Names of the model's parameters, and of this rank's parts of them."""
        named = list(self.model.module.named_parameters())
        parts = self.model.shards.own.items() if self.model.shards is not None else ()
        return {id(one): name for name, one in (*named, *parts)}

    def _named_masters(self) -> dict[str, torch.Tensor]:
        known = self._known()
        return {known[id(one)]: master.detach() for one, master in self._masters.pairs}


def joined(parts: list[dict[str, Any]], order: list[str]) -> dict[str, Any]:
    """One state of the states of several ranks; parameters in `order`."""
    whole = {**parts[0], "state": {}, "masters": {}}
    for part in parts:
        whole["state"].update(part["state"])
        whole["masters"].update(part["masters"])
    place = {name: index for index, name in enumerate(order)}
    whole["param_groups"] = [
        first | {"params": sorted({name for part in parts
                                   for name in part["param_groups"][index]["params"]},
                                  key=place.__getitem__)}
        for index, first in enumerate(parts[0]["param_groups"])
    ]
    return whole


def by_name(state_dict: dict[str, Any], order: list[str]) -> dict[str, Any]:
    """A state by name; a plain optimizer's, which counts parameters, if it has all in `order`."""
    counted = [one for group in state_dict["param_groups"] for one in group["params"]]
    if not counted or isinstance(counted[0], str):
        return state_dict
    if len(counted) != len(order):
        raise ValueError(
            f"the state of a plain optimizer has {len(counted)} parameters, the model {len(order)}: "
            "it goes with an optimizer over all of model.parameters(), in their order"
        )
    return {
        "state": {order[index]: value for index, value in state_dict["state"].items()},
        "param_groups": [group | {"params": [order[index] for index in group["params"]]}
                         for group in state_dict["param_groups"]],
    }


def latest_optimizer() -> DistributedOptimizer | None:
    """The program's optimizer, if there is one."""
    return _latest


def _copied(state_of_one: dict[str, Any]) -> dict[str, Any]:
    """Apart from the file that it may lie in."""
    return {key: value.clone() if isinstance(value, torch.Tensor) else value
            for key, value in state_of_one.items()}


def _everyones(parts: list[Any], group: dist.ProcessGroup) -> list[Any]:
    gathered: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(gathered, parts, group=group)
    return [one for of_rank in gathered for one in of_rank]
