"""Tests of SMP's surface on four processes: groups, meshes, sharded training, random streams.

Use: python tests/system/torch/smp_ranks_test.py. Needs torch and sprat.torch; runs over gloo and over
sprat. One launch for each backend runs all checks; each check is a test here.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import importlib
import json
import logging
import os
import pathlib
import tempfile
import time
import traceback
import unittest
from collections.abc import Callable

import smp_test
import torch
import torch.distributed as dist
import torch.multiprocessing
from ports import reserved_port
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WORLD = 4
SECONDS = 60  # for one collective, and until the ranks are given up
SPREAD = {
    "ddp": True,
    "prescaled_batch": True,
    "tensor_parallel_degree": 2,
    "placement_strategy": "spread",
}


class Block(nn.Module):
    """What stands for a transformer block."""

    def __init__(self, width: int):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    """Blocks between a first and a last layer, whose sizes do not divide by the ranks."""

    def __init__(self, width: int = 10):
        super().__init__()
        self.first = nn.Linear(7, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.last = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def equal(actual, expected, what: str = "") -> None:
    if actual != expected:
        raise AssertionError(f"rank {os.environ['RANK']}: {what} is {actual!r}, not {expected!r}")


def close(actual: torch.Tensor, expected: torch.Tensor, terms: int, what: str) -> None:
    """Both are sums of so many terms in different orders: each may round once a term."""
    bound = 2 * terms * torch.finfo(expected.dtype).eps * expected.abs().max().clamp(min=1).item()
    difference = (actual - expected).abs().max().item()
    if not difference <= bound:
        raise AssertionError(
            f"rank {os.environ['RANK']}: {what} differs by {difference}, above {bound}"
        )


@contextlib.contextmanager
def refused(kind: type, *words: str):
    try:
        yield
    except kind as error:
        for word in words:
            if word not in str(error):
                raise AssertionError(
                    f"rank {os.environ['RANK']}: {word!r} is not in {error}"
                ) from None
    else:
        raise AssertionError(f"rank {os.environ['RANK']}: no {kind.__name__} with {words}")


def members(group: dist.ProcessGroup) -> list[int]:
    """The ranks that a collective on the group reaches."""
    ranks = [torch.zeros(1, dtype=torch.int64) for _ in range(group.size())]
    dist.all_gather(ranks, torch.tensor([dist.get_rank()]), group=group)
    return [int(rank) for rank in ranks]


def full(model: nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: parameter.full_tensor().detach()
        if hasattr(parameter, "full_tensor")
        else parameter.detach()
        for name, parameter in model.named_parameters()
    }


def train(smp, model: nn.Module, steps: int = 3) -> nn.Module:
    """SGD on batches that differ between data-parallel ranks; alone, on all of them at once."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    random = torch.Generator().manual_seed(5)
    for _ in range(steps):
        batch = torch.randn(8 * WORLD, 7, dtype=torch.float64, generator=random)
        parts = 1 if smp is None else smp.rdp_size()
        part = 0 if smp is None else smp.rdp_rank()
        loss = model(batch.chunk(parts)[part]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def made(seed: int = 1) -> Model:
    torch.manual_seed(seed)
    return Model().double()


def reads_before_init_are_refused(smp):
    with refused(AttributeError, "state.mesh", "call init(config) first"):
        _ = smp.state.mesh
    with refused(AttributeError, "call init(config) first"):
        smp.dp_rank()


def init_without_configuration_shards_over_the_world(smp):
    equal(smp.init() is smp.state, True, "what init returns")
    equal(smp.state.config, smp_test.config.resolve(None).values, "config")
    equal((smp.state.rank, smp.state.world_size), (dist.get_rank(), WORLD), "rank, world_size")
    equal((smp.state.hybrid_shard_degree, smp.state.replicas), (WORLD, 1), "degrees")
    equal(smp.state.mesh.mesh_dim_names, ("replicate", "shard"), "axes")
    equal(smp.state.mesh.mesh.tolist(), [[0, 1, 2, 3]], "mesh")
    equal(members(smp.state.shard_process_group), [0, 1, 2, 3], "shard group")
    equal(members(smp.state.rep_rank_process_group), [smp.rank()], "replicate group")
    with refused(AttributeError, "state.nothing", "no such thing"):
        _ = smp.state.nothing


def hybrid_degree_two_shards_pairs(smp):
    smp.init({"hybrid_shard_degree": 2})
    rank = dist.get_rank()
    equal(smp.state.mesh.mesh.tolist(), [[0, 1], [2, 3]], "mesh")
    equal(members(smp.state.shard_process_group), [[0, 1], [2, 3]][rank // 2], "shard group")
    equal(members(smp.state.rep_rank_process_group), [[0, 2], [1, 3]][rank % 2], "replicate group")
    equal(members(smp.state.mesh["replicate"].get_group()), [[0, 2], [1, 3]][rank % 2], "axis")


def degree_one_only_replicates(smp):
    smp.init({"hybrid_shard_degree": 1})
    equal(smp.state.replicas, WORLD, "replicas")
    equal(members(smp.state.shard_process_group), [smp.rank()], "shard group")


def tensor_parallel_ranks_are_innermost(smp):
    smp.init({"tensor_parallel_degree": 2})
    rank = dist.get_rank()
    equal(smp.state.mesh.mesh_dim_names, ("replicate", "shard", "tensor"), "axes")
    equal(smp.state.mesh.mesh.tolist(), [[[0, 1], [2, 3]]], "mesh")
    equal((smp.state.tp_size, smp.state.tp_rank), (2, rank % 2), "tp_size, tp_rank")
    equal(members(smp.state.tp_process_group), [[0, 1], [2, 3]][rank // 2], "tensor group")
    equal(members(smp.state.shard_process_group), [[0, 2], [1, 3]][rank % 2], "shard group")


def spread_puts_tensor_parallel_ranks_far_apart(smp):
    smp.init(SPREAD)
    rank = dist.get_rank()
    equal(members(smp.get_tp_process_group()), [[0, 2], [1, 3]][rank % 2], "tensor group")
    equal(members(smp.state.mesh["tensor"].get_group()), [[0, 2], [1, 3]][rank % 2], "axis")
    equal(members(smp.get_rdp_process_group()), [[0, 1], [2, 3]][rank // 2], "reduced data group")


def ranks_of_v1_agree_with_their_groups(smp):
    for config in ({"ddp": True}, SPREAD, {**SPREAD, "placement_strategy": "cluster"}):
        smp.init(config)
        for name in ("tp", "pp", "rdp", "mp", "dp"):
            group = getattr(smp, f"get_{name}_process_group")()
            ranks = members(group)
            equal(getattr(smp, f"{name}_size")(), len(ranks), f"{name}_size")
            equal(ranks[getattr(smp, f"{name}_rank")()], smp.rank(), f"{name}_rank")
        equal(members(smp.get_world_process_group()), list(range(smp.size())), "world")
        equal(members(smp.get_mp_process_group()), smp.get_mp_group(), "get_mp_group")
        equal(members(smp.get_dp_process_group()), smp.get_dp_group(), "get_dp_group")
        sizes = (
            smp.pp_size() * smp.tp_size() * smp.rdp_size(),
            smp.pp_size() * smp.dp_size(),
            smp.mp_size() * smp.rdp_size(),
        )
        equal(sizes, (WORLD, WORLD, WORLD), "identities")


def local_ranks_are_the_launchers(smp):
    equal((smp.local_rank(), smp.local_size()), (dist.get_rank(), WORLD), "local rank, size")
    kept = os.environ.pop("LOCAL_RANK")
    try:
        with refused(RuntimeError, "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"):
            smp.local_rank()
        os.environ["OMPI_COMM_WORLD_LOCAL_RANK"] = "7"
        equal(smp.local_rank(), 7, "local rank under mpirun")
    finally:
        os.environ.pop("OMPI_COMM_WORLD_LOCAL_RANK", None)
        os.environ["LOCAL_RANK"] = kept


def ranks_that_disagree_are_told_so(smp):
    with refused(ValueError, "rank 0 has hybrid_shard_degree = 1, rank 2 2", "same configuration"):
        smp.init({"hybrid_shard_degree": 2 if dist.get_rank() == 2 else 1})
    with refused(ValueError, "rank 0 has a configuration of SMP v2, rank 3 one of SMP v1"):
        smp.init({"ddp": True} if dist.get_rank() == 3 else {})


def a_degree_that_does_not_fit_is_refused_on_every_rank(smp):
    with refused(ValueError, "hybrid_shard_degree = 3", "choose one of 1, 2, 4"):
        smp.init({"hybrid_shard_degree": 3})


def sharded_training_equals_training_alone(smp):
    expected = full(train(None, made()))
    for config in (
        {},
        {"hybrid_shard_degree": 2},
        {"hybrid_shard_degree": 1},
        {"ddp": True},
        {"ddp": True, "sharded_data_parallel_degree": 2},
    ):
        smp.init(config)
        for blocks in (None, (Block, nn.Linear), lambda module: isinstance(module, Block)):
            model = train(smp, smp.shard(made(), blocks))
            for name, value in full(model).items():
                # A gradient is a sum over the samples; three steps of it are added.
                close(value, expected[name], 3 * 8 * WORLD, f"{config}: {name}")


def options_reach_every_block(smp):
    smp.init()
    model = smp.shard(made(), reshard_after_forward=False)
    model(torch.ones(1, 7, dtype=torch.float64))
    gathered = [not hasattr(parameter, "full_tensor") for parameter in model.parameters()]
    equal(all(gathered), True, "parameters stay gathered")
    model = smp.shard(made(), reshard_after_forward=True)
    model(torch.ones(1, 7, dtype=torch.float64))
    gathered = [hasattr(parameter, "full_tensor") for parameter in model.parameters()]
    equal(all(gathered), True, "parameters are shards again")


def shard_refuses_what_it_cannot_do(smp):
    smp.init()
    with refused(ValueError, "mesh from init"):
        smp.shard(made(), mesh=smp.state.mesh)
    with refused(ValueError, "matches no module of Model", "Block", "Linear"):
        smp.shard(made(), nn.TransformerEncoderLayer)


def bf16_computes_in_bfloat16_and_keeps_float32(smp):
    smp.init({"ddp": True, "sharded_data_parallel_degree": 4, "bf16": True})
    model = smp.shard(Model())
    output = model(torch.ones(2, 7))
    equal(output.dtype, torch.bfloat16, "dtype of what is computed")
    output.sum().backward()
    kinds = {parameter.dtype for parameter in model.parameters()}
    equal(kinds, {torch.float32}, "dtype of parameters")


def tensor_parallel_blocks_shard_too(smp):
    expected = full(train(None, made()))
    for config in (
        {"tensor_parallel_degree": 2},
        SPREAD,
        {**SPREAD, "sharded_data_parallel_degree": 2},
    ):
        smp.init(config)
        model = made()
        for block in model.blocks:
            plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
            parallelize_module(block, smp.state.mesh["tensor"], plan)
        train(smp, smp.shard(model))
        for name, value in full(model).items():
            close(value, expected[name], 3 * 8 * WORLD * 20, f"{config}: {name}")


def gradients_are_clipped_to_the_norm_over_all_shards(smp):
    smp.init({"ddp": True, "sharded_data_parallel_degree": 2, "sdp_gradient_clipping": 0.125})
    model = smp.shard(made())
    alone = made()
    batch = torch.arange(14, dtype=torch.float64).view(2, 7)
    for each in (model, alone):
        each(batch).square().sum().backward()
    before = nn.utils.clip_grad_norm_(alone.parameters(), 0.125)
    count = sum(parameter.numel() for parameter in alone.parameters())
    close(smp.clip_gradients(model) / before, torch.ones_like(before), count, "norm before")
    for name, parameter in model.named_parameters():
        gradient = dict(alone.named_parameters())[name].grad
        close(parameter.grad.full_tensor(), gradient, count, f"clipped gradient of {name}")
    smp.init()
    with refused(ValueError, "SMP v1", "clip_grad_norm_"):
        smp.clip_gradients(model)


def a_seed_gives_one_stream_and_one_for_each_tensor_parallel_rank(smp):
    def numbers(seed: int, count: int) -> list[float]:
        random = torch.Generator().manual_seed(seed)
        return torch.rand(count, generator=random).tolist()

    smp.init({"random_seed": 40, "tensor_parallel_degree": 2})
    drawn, own = [], []
    for _ in range(2):
        drawn.append(torch.rand(1).item())
        with smp.tensor_parallel_random():
            own.append(torch.rand(1).item())
    equal(drawn, numbers(40, 2), "the stream of all ranks")
    equal(own, numbers(40 + smp.tp_rank(), 2), "the stream of this tensor-parallel rank")


def without_a_seed_the_scripts_own_stays(smp):
    torch.manual_seed(9)
    expected = copy.copy(torch.get_rng_state().tolist())
    smp.init({"tensor_parallel_degree": 2})
    equal(torch.get_rng_state().tolist() == expected, True, "torch's random state is kept")


def a_scheduler_warms_up_to_the_scaled_rate(smp):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.25)
    scheduler = smp.scaled_learning_rate_scheduler(optimizer, 8, 64, warmup_steps=7)
    rates = []
    for _ in range(9):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    equal(rates, [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.0], "rates")


CHECKS = (
    reads_before_init_are_refused,
    init_without_configuration_shards_over_the_world,
    hybrid_degree_two_shards_pairs,
    degree_one_only_replicates,
    tensor_parallel_ranks_are_innermost,
    spread_puts_tensor_parallel_ranks_far_apart,
    ranks_of_v1_agree_with_their_groups,
    local_ranks_are_the_launchers,
    ranks_that_disagree_are_told_so,
    a_degree_that_does_not_fit_is_refused_on_every_rank,
    sharded_training_equals_training_alone,
    options_reach_every_block,
    shard_refuses_what_it_cannot_do,
    bf16_computes_in_bfloat16_and_keeps_float32,
    tensor_parallel_blocks_shard_too,
    gradients_are_clipped_to_the_norm_over_all_shards,
    a_seed_gives_one_stream_and_one_for_each_tensor_parallel_rank,
    without_a_seed_the_scripts_own_stays,
    a_scheduler_warms_up_to_the_scaled_rate,
)


def run_checks(rank: int, backend: str, port: int, folder: str) -> None:
    """One rank: writes what each check came to, an empty text for success."""
    os.environ.update(
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        RANK=str(rank),
        WORLD_SIZE=str(WORLD),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(WORLD),
    )
    torch.set_num_threads(1)
    # full_tensor of what is split both ways warns that it gathers twice, which is no matter here.
    logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
    smp = importlib.import_module("sprat.torch.smp")
    if backend != "sprat":
        dist.init_process_group(backend, timeout=datetime.timedelta(seconds=SECONDS))
    outcomes = {}
    for check in CHECKS:
        try:
            check(smp)
            outcomes[check.__name__] = ""
        except Exception:
            outcomes[check.__name__] = traceback.format_exc()
        (pathlib.Path(folder) / f"{rank}.json").write_text(json.dumps(outcomes))
    dist.destroy_process_group()


def launch(backend: str) -> dict[str, str]:
    """What each check came to, over all ranks."""
    port = reserved_port()
    with tempfile.TemporaryDirectory() as folder:
        ranks = torch.multiprocessing.start_processes(
            run_checks, (backend, port, folder), WORLD, join=False, start_method="spawn"
        )
        deadline = time.monotonic() + 5 * SECONDS
        failure = ""
        try:
            while not ranks.join(timeout=1):
                if time.monotonic() > deadline:
                    failure = f"the ranks were still running after {5 * SECONDS} s"
                    break
        except Exception as error:
            failure = str(error)
        for process in ranks.processes:
            process.kill()
        outcomes = {check.__name__: "" for check in CHECKS}
        for rank in range(WORLD):
            path = pathlib.Path(folder) / f"{rank}.json"
            done = json.loads(path.read_text()) if path.exists() else {}
            for name in outcomes:
                outcomes[name] += done.get(name, failure)
        return outcomes


class OverGloo(unittest.TestCase):
    backend = "gloo"

    @classmethod
    def setUpClass(cls):
        cls.outcomes = launch(cls.backend)


class OverSprat(OverGloo):
    backend = "sprat"


def test_of(check) -> Callable[[unittest.TestCase], None]:
    def test(case: unittest.TestCase) -> None:
        outcome = case.outcomes[check.__name__]
        if outcome:
            case.fail(outcome)

    return test


for each in CHECKS:
    setattr(OverGloo, f"test_{each.__name__}", test_of(each))


if __name__ == "__main__":
    unittest.main()
