"""Device meshes, DTensor's placements, and tensor, sequence and loss parallelism."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor, ones)
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel, SequenceParallel, loss_parallel,
                                               parallelize_module)

from cell import Theme
from cells.exact import (WIDTH, alone, batch, close, integers, loss, network, same,
                         same_parameters, sgd, share, train)

CELLS = Theme("Meshes, DTensor, tensor parallel")


def _mesh(size: int, name: str = "tp") -> DeviceMesh:
    return init_device_mesh("cpu", (size,), mesh_dim_names=(name,))


@CELLS.cell("DeviceMesh: coordinates, slices, groups, flatten", sizes=(4,))
def device_mesh(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    assert list(mesh.get_coordinate()) == [rank // 2, rank % 2], mesh.get_coordinate()
    for name, expected in (("a", rank % 2 + (rank % 2 + 2)), ("b", rank // 2 * 4 + 1)):
        tensor = torch.tensor(float(rank))
        torch.distributed.all_reduce(tensor, group=mesh[name].get_group())
        assert tensor.item() == expected, f"the sum over {name} is {tensor.item()}, not {expected}"
    flat = mesh["a", "b"]._flatten("all")
    tensor = torch.tensor(float(rank))
    torch.distributed.all_reduce(tensor, group=flat.get_group())
    assert tensor.item() == 6
    own = DeviceMesh("cpu", [[3, 1], [0, 2]])
    assert list(own.get_coordinate()) == {3: [0, 0], 1: [0, 1], 0: [1, 0], 2: [1, 1]}[rank]


@CELLS.cell("DTensor: every redistribution, even and uneven rows")
def redistribution(rank: int, size: int) -> None:
    mesh = _mesh(size)
    for rows in (4 * size, 4 * size - 1, 1):
        whole = integers(rows, 6, seed=3)
        placements = (Replicate(), Shard(0), Shard(1))
        for source, target in itertools.product(placements, placements):
            tensor = distribute_tensor(whole, mesh, [source]).redistribute(mesh, [target])
            same(tensor.full_tensor(), whole, f"{rows} rows from {source} to {target}")
        for target in placements:
            partial = DTensor.from_local(whole.clone(), mesh, [Partial()], run_check=False)
            same(partial.redistribute(mesh, [target]).full_tensor(), whole * size, f"{rows} rows, sum to {target}")


@CELLS.cell("DTensor on a 2-D mesh: Partial avg, max; sharded twice", sizes=(4,))
def two_dimensions(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (2, 2))
    whole = integers(9, 5, seed=4)
    for first, second in itertools.product((Replicate(), Shard(0), Shard(1)), repeat=2):
        tensor = distribute_tensor(whole, mesh, [first, second])
        same(tensor.full_tensor(), whole, f"{first}, {second}")
    for kind, expected in (("avg", whole + 0.5), ("max", whole + 1), ("min", whole)):
        local = whole + mesh.get_coordinate()[1]
        tensor = DTensor.from_local(local, mesh, [Replicate(), Partial(kind)], run_check=False)
        same(tensor.full_tensor(), expected, kind)


@CELLS.cell("DTensor arithmetic")
def arithmetic(rank: int, size: int) -> None:
    mesh = _mesh(size)
    a, b = integers(8, 12, seed=5), integers(12, 4, seed=6)
    product = distribute_tensor(a, mesh, [Shard(1)]) @ distribute_tensor(b, mesh, [Shard(0)])
    same(product.full_tensor(), a @ b, "product")
    same(distribute_tensor(a, mesh, [Shard(0)]).sum().full_tensor(), a.sum(), "sum")
    assert ones((size * 2, 3), device_mesh=mesh, placements=[Shard(0)]).full_tensor().sum() == size * 6


@CELLS.cell("DTensor: distribute_module, sharded embedding")
def embedding(rank: int, size: int) -> None:
    table = integers(16, 8, seed=7)
    for placement in (ColwiseParallel(), RowwiseParallel(input_layouts=Replicate())):
        module = nn.Embedding(16, 8, dtype=torch.float64)
        with torch.no_grad():
            module.weight.copy_(table)
        parallel = parallelize_module(module, _mesh(size), placement)
        output = parallel(torch.arange(16).flip(0))
        output = output.full_tensor() if isinstance(output, DTensor) else output
        expected = table.flip(0)
        shown = expected.chunk(size, 1)[rank] if output.shape != expected.shape else expected
        same(output, shown, type(placement).__name__)
    replicated = distribute_module(nn.Linear(3, 3), _mesh(size))
    values = [torch.empty(3, 3) for _ in range(size)]
    torch.distributed.all_gather(values, replicated.weight.to_local().detach())
    for value in values:
        same(value, values[0], "replicated weight")


def _pair(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """Two blocks: the first is split by its outputs, the second by its inputs."""
    return network(dtype, blocks=2, hidden=16)


def _split(model: nn.Sequential, mesh: DeviceMesh, **layouts) -> nn.Module:
    """Column, then row parallel; `layouts` says how activations come in and go out."""
    rows = {"output_layouts": layouts["outside"]} if layouts else {}
    columns = {"input_layouts": layouts["outside"]} if layouts else {}
    return parallelize_module(model, mesh, {"0.linear": ColwiseParallel(**columns),
                                            "1.linear": RowwiseParallel(**rows)})


def _whole_batches(model: nn.Module, size: int, steps: int = 2) -> None:
    """Every rank has all rows."""
    train(model, sgd(model), 0, 1, steps, shares=size)


@CELLS.cell("Tensor parallel: ColwiseParallel, RowwiseParallel")
def tensor_parallel(rank: int, size: int) -> None:
    model = _split(_pair(), _mesh(size))
    _whole_batches(model, size)
    same_parameters(model, alone(size, blocks=2, hidden=16))


@CELLS.cell("Sequence parallel: activations sharded by rows between the blocks")
def sequence_parallel(rank: int, size: int) -> None:
    """The rows of a rank are its share; Colwise gathers them and Rowwise scatters the sums."""
    model = _split(_pair(), _mesh(size), outside=Shard(0))
    optimizer = sgd(model)
    for step in range(2):
        inputs, weights = (share(t, rank, size) for t in batch(step, size))
        (loss(model(inputs), weights) / size).backward()
        optimizer.step()
        optimizer.zero_grad()
    same_parameters(model, alone(size, blocks=2, hidden=16))


class _Normed(nn.Module):
    """A norm before and after a linear layer, as in a transformer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.before = nn.LayerNorm(WIDTH, dtype=torch.float64)
        self.linear = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
        self.after = nn.LayerNorm(WIDTH, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.linear(self.before(x)))


@CELLS.cell("SequenceParallel norms around a column-parallel layer")
def norms(rank: int, size: int) -> None:
    whole, parallel = _Normed(), _Normed()
    x = torch.randn(2, 4 * size, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    parallelize_module(parallel, _mesh(size), {
        "before": SequenceParallel(),
        "linear": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(1), use_local_output=False),
        "after": SequenceParallel()})
    output = parallel(x.chunk(size, 1)[rank]).full_tensor()
    expected = whole(x)
    # Each element comes of three sums over WIDTH, two of them squares.
    close(output, expected, terms=8 * WIDTH, what="output")
    output.square().sum().backward()
    expected.square().sum().backward()
    for (name, ours), theirs in zip(parallel.named_parameters(), whole.parameters(), strict=True):
        # Gradients are sums over all 8 x size rows of such elements.
        close(ours.grad.full_tensor(), theirs.grad, terms=8 * WIDTH * 8 * size, what=name)


@CELLS.cell("loss_parallel: cross entropy over sharded classes")
def parallel_loss(rank: int, size: int) -> None:
    mesh = _mesh(size)
    generator = torch.Generator().manual_seed(2)
    whole = torch.randn(10, 4 * size, dtype=torch.float64, generator=generator).requires_grad_()
    labels = torch.randint(0, 4 * size, (10,), generator=generator)
    expected = F.cross_entropy(whole, labels, label_smoothing=0.0)
    expected.backward()
    logits = distribute_tensor(whole.detach(), mesh, [Shard(1)]).requires_grad_()
    with loss_parallel():
        value = F.cross_entropy(logits, labels)
        value.backward()
    # The loss sums exponentials of 4 x size classes, then 10 rows.
    close(value.full_tensor().detach(), expected.detach(), terms=40 * size, what="loss")
    close(logits.grad.full_tensor(), whole.grad, terms=40 * size, what="gradient")


@CELLS.cell("FSDP2 and tensor parallel over a 2-D mesh", sizes=(4,))
def fsdp_and_tensor_parallel(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = _split(_pair(), mesh["tp"])
    for block in model:
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    train(model, sgd(model), rank // 2, 2)
    same_parameters(model, alone(2, blocks=2, hidden=16))


@CELLS.cell("DTensor gradients: to_local, from_local, full_tensor backward")
def through_locals(rank: int, size: int) -> None:
    mesh = _mesh(size)
    weight = distribute_tensor(integers(WIDTH, WIDTH, seed=9), mesh, [Shard(0)]).requires_grad_()
    inputs, weights = batch(0, 1)
    ((inputs @ weight.full_tensor()) * weights).sum().backward()
    expected = inputs.t() @ weights
    same(weight.grad.full_tensor(), expected * (size if weight.grad.placements[0].is_partial() else 1), "gradient")


