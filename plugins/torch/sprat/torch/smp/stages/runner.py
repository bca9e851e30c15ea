"""Which steps are played by stages: captures, plans, and agrees with the other ranks of the pipeline."""

from __future__ import annotations

import functools
import logging
import pickle
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from ..faults.naming import rank_name
from ..server.server import StepFailed
from ..state import state as library
from .capture import Captured, capture, tensors_of
from .engine import Engine, Step
from .facts import Facts, facts_of
from .graph_cut import GraphCut, by_graph
from .order import Pipeline
from .ownership import Placement, by_owners
from .plan import Plan, plan_of
from .program import Program, Unservable, Use
from .surroundings import Snapshot, key_of, refusal_here, require_only_computes

if TYPE_CHECKING:
    from ..model import DistributedModel

log = logging.getLogger(__name__)
# Steps with other shapes or numbers than so many before are the server's...
MOST_PLANS = 8
# ...as are all further ones that are new, after so many that could not be captured.
MOST_REFUSALS = 4

_FINE, _REFUSED = 0, 1  # what a rank says of itself
_BY_SERVER, _BY_PLAN, _NEW_PLAN = 0, 1, 2


@dataclass(frozen=True)
class Call:
    """A step, as ranks compare it."""

    number: int
    microbatches: int
    forms: Any
    trains: bool
    in_training: bool  # the model's modules
    seed: int

    @property
    def way(self) -> str:
        """Ranks of which one evaluates would leave gradients behind, or drop out unlike others."""
        return f"{'training' if self.trains else 'evaluation'} in model.{'train' if self.in_training else 'eval'}()"

    @property
    def begin(self) -> tuple:
        """As the server's first message has it."""
        return (self.number, self.microbatches, self.way, self.forms)

    @property
    def stands_in(self) -> bool:
        """Whether its tensors are empty, as scripts pass them that read data on rank 0 alone."""
        return all(0 in shape for shape, _ in self.forms)


@dataclass(frozen=True)
class FirstCut:
    """What the split of a model at operations already knows of its first step."""

    key: tuple
    captured: Captured
    cut: GraphCut


def cut_first(model: DistributedModel, body: functools.partial, partitions: int,
              goal: str) -> FirstCut:
    """Unservable or ValueError says why the step's graph cannot be cut."""
    key, captured = _captured(model, body)
    facts = facts_of(captured.program, captured.forms, torch.is_grad_enabled())
    lasting = set(model.module.state_dict())
    cut = by_graph(captured.program, facts, partitions, goal, lasting.__contains__)
    return FirstCut(key, captured, cut)


def _captured(model: DistributedModel, body: functools.partial) -> tuple[tuple, Captured]:
    """The program, and the key that it stands for."""
    require_only_computes(body.func)
    around = Snapshot(body.func, model.module)
    # A first call may note something for good, as models of transformers do in their config.
    for _ in range(2):
        key = key_of(body, model.module)
        captured = capture(model, body)
        if key == key_of(body, model.module):
            return key, captured
    changes = around.changes()
    around.restore()
    raise Unservable(f"the step changes {changes[0] if changes else 'what it reads'}")


class _Head(NamedTuple):
    """What a rank says of a step before it."""

    state: int  # _FINE or _REFUSED
    mode: int = 0  # of rank 0
    plan: int = 0
    number: int = 0
    microbatches: int = 0
    way: int = 0
    forms: int = 0  # hashed
    stands_in: int = 0
    cannot: int = 0  # be played by stages, for a reason of this rank's
    seed: int = 0


Difference = Callable[[tuple, tuple], str | None]


class Stages:
    """Lives as long as the model. Collective over the pipeline's ranks but for what says otherwise."""

    def __init__(self, model: DistributedModel, group: dist.ProcessGroup, required: bool):
        """required: a step that cannot be played is an error, not the server's."""
        self._model = model
        self._group = group
        self._rank = dist.get_rank(group)
        self._required = required
        self._engines: list[Engine] = []
        self._numbers: dict[tuple, int] = {}  # of plans, by what they stand for; on rank 0
        self._refused: dict[tuple, str] = {}
        self._unsent: dict[tuple, Plan] = {}  # made by rank 0 while another rank refused
        self._said: set[str] = set()
        model.gradients.is_lent = lambda tensor: any(one.lent(tensor) for one in self._engines)

    @property
    def plans(self) -> list[Plan]:
        """Those made so far, the same on every rank."""
        return [engine.plan for engine in self._engines]

    def agree(self, bodies: list[functools.partial], call: Call,
              difference: Difference) -> Engine | None:
        """Which plan this step is played by; None: it is the server's.

        StepFailed on every rank if one refuses, or differs.
        """
        here = refusal_here(self._model.module)
        mode, number, plan = _BY_SERVER, 0, None
        if self._rank == 0 and not here:
            try:
                mode, number, plan = self._choose(bodies[0], call)
            except Unservable as error:
                here = str(error)
            except Exception as error:
                self.refuse(error)
        mine = _Head(_FINE, mode, number, call.number, call.microbatches, _hash(call.way), _hash(call.forms),
                     int(call.stands_in), int(bool(here)), call.seed)
        heads = [_Head(*one) for one in self._gather(list(mine))]
        if any(head.state != _FINE for head in heads) or self._differ(heads):
            self._tell("", call, difference)
        self._say(here)
        if any(head.cannot for head in heads):
            if self._required:
                self._tell(f"static_mode is true, and this step cannot be played by stages: {here}"
                           if here else "", call, difference)
            return None
        mode, number = heads[0].mode, heads[0].plan
        if mode == _NEW_PLAN:
            if self._rank == 0:
                self._numbers[next(key for key, one in self._unsent.items() if one is plan)] = number
                self._unsent = {}
            held = [pickle.dumps(plan) if self._rank == 0 else None]
            dist.broadcast_object_list(held, group=self._group, group_src=0)
            made = plan if self._rank == 0 else pickle.loads(held[0])
            self._engines.append(
                Engine(made, self._group, self._model.module, self._model.gradients))
        self._seed = heads[0].seed
        return self._engines[number] if mode != _BY_SERVER else None

    def play(self, engine: Engine, bodies: list[functools.partial]) -> list[Any]:
        """The bodies' results. StepFailed on every rank if one fails."""
        inputs = [tensors_of(body) for body in bodies] if self._rank == 0 else []
        step = Step(inputs, self._seed, self._model.loss_scale, self._model.gradients.finish)
        try:
            played = engine.run(step)
            text = self._failure_text(played.failure, played.where)
            ends = self._gather([int(bool(text)), int(played.void)])
        except (KeyboardInterrupt, SystemExit, StepFailed):
            raise
        except Exception as error:  # of the group: a rank is lost, or late
            raise StepFailed(self._named(f"{type(error).__name__}: {error}")) from error
        if any(end[0] or end[1] for end in ends):
            self._raise_first(text, played.failure)
        results = engine.plan.program.results
        return [pytree.tree_map(
            lambda leaf: played.results[leaf.value, j] if isinstance(leaf, Use) else leaf, results)
            for j in range(len(bodies))]

    def refuse(self, error: Exception) -> NoReturn:
        """Of a rank that cannot take part: instead of agree(). Raises on every rank."""
        self._gather(list(_Head(_REFUSED)))
        texts: list[Any] = [None] * dist.get_world_size(self._group)
        text = self._named(f"{type(error).__name__}: {error}")
        dist.all_gather_object(texts, (text, None), group=self._group)
        raise error

    # How rank 0 decides.

    def _choose(self, body: functools.partial, call: Call) -> tuple[int, int, Plan | None]:
        key = key_of(body, self._model.module), call.trains, call.microbatches
        if key in self._numbers:
            return _BY_PLAN, self._numbers[key], None
        if key in self._refused:
            raise Unservable(self._refused[key])
        if key not in self._unsent:
            if len(self._refused) == MOST_REFUSALS:
                raise Unservable(next(reversed(self._refused.values())))
            try:
                stands_for, plan = self._plan(body, call, key[0])
            except Unservable as error:
                self._refused[key] = str(error)
                raise
            key = stands_for, call.trains, call.microbatches
            self._unsent[key] = plan
        return _NEW_PLAN, len(self._engines), self._unsent[key]

    def _plan(self, body: functools.partial, call: Call, key: tuple) -> tuple[tuple, Plan]:
        if len(self._engines) == MOST_PLANS:
            raise Unservable(f"there are {MOST_PLANS} plans already, of steps of other shapes")
        first, self._model.first_cut = self._model.first_cut, None
        if first is not None and first.key == key:
            captured = first.captured
        else:
            first = None
            key, captured = _captured(self._model, body)
        config = library.config
        pipeline = Pipeline(dist.get_world_size(self._group), call.microbatches,
                            config.get("pipeline", "interleaved"),
                            config.get("active_microbatches", dist.get_world_size(self._group) + 2))
        lasting = set(self._model.module.state_dict())

        def place(program: Program, facts: Facts) -> Placement:
            if first is not None:
                return first.cut.placement
            return by_owners(program, facts, self._model.owner, lasting.__contains__)

        return key, plan_of(captured, place, pipeline, call.trains, call.forms)

    def _say(self, reason: str) -> None:
        if reason and reason not in self._said and not self._required:
            self._said.add(reason)
            log.warning("the execution server runs this step, since stages cannot: %s", reason)

    # What ranks tell each other.

    def _gather(self, numbers: list[int]) -> list[list[int]]:
        mine = torch.tensor(numbers, dtype=torch.int64)
        all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(all_of_them, mine, group=self._group)
        return [one.tolist() for one in all_of_them]

    def _differ(self, heads: list[_Head]) -> bool:
        first = heads[0]
        return any((head.number, head.microbatches, head.way) != (first.number, first.microbatches, first.way)
                   or (head.forms != first.forms and not head.stands_in) for head in heads)

    def _tell(self, text: str, call: Call, difference: Difference) -> NoReturn:
        """Raises on every rank what one of them has to say, or what differs."""
        texts: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(texts, (text and self._named(text), call.begin), group=self._group)
        for rank, (said, begin) in enumerate(texts):
            if said:
                raise StepFailed(said)
            wrong = difference(begin, texts[0][1]) if begin and texts[0][1] else None
            if wrong:
                raise StepFailed(f"{self._name(rank)}: ValueError: {wrong}")
        raise StepFailed("ranks of the pipeline call different steps")

    def _named(self, text: str) -> str:
        return f"{self._name(self._rank)}: {text}"

    def _name(self, rank: int) -> str:
        return rank_name(rank, dist.get_process_group_ranks(self._group))

    def _failure_text(self, error: BaseException | None, where: str) -> str:
        return "" if error is None else self._named(f"{where}: {type(error).__name__}: {error}")

    def _raise_first(self, text: str, failure: BaseException | None) -> NoReturn:
        texts: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(texts, text, group=self._group)
        if isinstance(failure, (KeyboardInterrupt, SystemExit)):
            raise failure
        first = next((one for one in texts if one), "a rank of the pipeline failed")
        raise StepFailed(first) from failure


def _hash(forms: Any) -> int:
    return zlib.crc32(repr(forms).encode())
