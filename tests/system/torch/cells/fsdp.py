"""Sharded data parallel: FSDP1's strategies, FSDP2's fully_shard, and both over two dimensions."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as Fsdp1
from torch.distributed.fsdp import (MixedPrecision, MixedPrecisionPolicy, ShardingStrategy, StateDictType,
                                    fully_shard)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import Shard

from cell import Theme
from cells.exact import (Block, alone, batch, close, gradients, loss, network, same, same_parameters, sgd, share,
                         train)

CELLS = Theme("Sharded data parallel")
CPU = torch.device("cpu")


def _fsdp1(model: nn.Module, strategy: ShardingStrategy, **options) -> Fsdp1:
    return Fsdp1(model, sharding_strategy=strategy, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=CPU,
                 **options)


def _trains_as_one_process(model: Fsdp1, rank: int, size: int) -> None:
    train(model, sgd(model), rank, size)
    with Fsdp1.summon_full_params(model):
        same_parameters(model, alone(size))


@CELLS.cell("FSDP1 FULL_SHARD")
def full_shard(rank: int, size: int) -> None:
    _trains_as_one_process(_fsdp1(network(), ShardingStrategy.FULL_SHARD), rank, size)


@CELLS.cell("FSDP1 SHARD_GRAD_OP")
def shard_grad_op(rank: int, size: int) -> None:
    _trains_as_one_process(_fsdp1(network(), ShardingStrategy.SHARD_GRAD_OP), rank, size)


@CELLS.cell("FSDP1 NO_SHARD")
def no_shard(rank: int, size: int) -> None:
    _trains_as_one_process(_fsdp1(network(), ShardingStrategy.NO_SHARD), rank, size)


@CELLS.cell("FSDP1 HYBRID_SHARD, _HYBRID_SHARD_ZERO2 over a 2-D mesh", sizes=(4,))
def hybrid_shard(rank: int, size: int) -> None:
    for strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        _trains_as_one_process(_fsdp1(network(), strategy, device_mesh=mesh), rank, size)


@CELLS.cell("FSDP1, use_orig_params")
def original_parameters(rank: int, size: int) -> None:
    _trains_as_one_process(_fsdp1(network(), ShardingStrategy.FULL_SHARD, use_orig_params=True), rank, size)


@CELLS.cell("FSDP1, bf16 MixedPrecision")
def mixed_precision_1(rank: int, size: int) -> None:
    """Of this network the gradients of one step are exact in bf16 too."""
    policy = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    model = _fsdp1(network(torch.float32), ShardingStrategy.FULL_SHARD, mixed_precision=policy)
    inputs, weights = (share(t, rank, size) for t in batch(0, size, torch.float32))
    loss(model(inputs), weights.to(torch.bfloat16)).float().backward()
    sgd(model).step()
    with Fsdp1.summon_full_params(model):
        same_parameters(model, alone(size, 1, torch.float32))


@CELLS.cell("FSDP1, no_sync and clip_grad_norm_")
def accumulation_1(rank: int, size: int) -> None:
    single = torch.float32  # FSDP1 holds norms as f32.
    model = _fsdp1(network(single), ShardingStrategy.FULL_SHARD, use_orig_params=True)
    rows = [batch(step, size, single) for step in range(2)]
    mine = [tuple(share(t, rank, size) for t in pair) for pair in rows]
    with model.no_sync():
        loss(model(mine[0][0]), mine[0][1]).backward()
    loss(model(mine[1][0]), mine[1][1]).backward()
    whole = gradients(network(single), rows)
    close(model.clip_grad_norm_(1e9), torch.linalg.vector_norm(torch.stack([g.norm() for g in whole])),
          terms=sum(g.numel() for g in whole), what="norm")
    with Fsdp1.summon_full_params(model, with_grads=True):
        for parameter, gradient in zip(model.parameters(), whole, strict=True):
            same(parameter.grad, gradient, "gradient")


@CELLS.cell("FSDP1, full and sharded state dicts")
def state_dicts(rank: int, size: int) -> None:
    model = _fsdp1(network(), ShardingStrategy.FULL_SHARD)
    train(model, sgd(model), rank, size)
    expected = alone(size).state_dict()
    with Fsdp1.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        full = model.state_dict()
    for name, tensor in full.items():
        same(tensor, expected[name], name)
    with Fsdp1.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        sharded = model.state_dict()
        other = _fsdp1(network(), ShardingStrategy.FULL_SHARD)
        with Fsdp1.state_dict_type(other, StateDictType.SHARDED_STATE_DICT):
            other.load_state_dict(sharded)
    with Fsdp1.summon_full_params(other):
        same_parameters(other, alone(size))


def _sharded(model: nn.Sequential, **options) -> nn.Sequential:
    for block in model:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def _mesh(size: int):
    return init_device_mesh("cpu", (size,))


@CELLS.cell("FSDP2 fully_shard")
def fsdp2(rank: int, size: int) -> None:
    model = _sharded(network(), mesh=_mesh(size))
    train(model, sgd(model), rank, size)
    same_parameters(model, alone(size))


@CELLS.cell("FSDP2, default mesh")
def default_mesh(rank: int, size: int) -> None:
    model = _sharded(network())
    train(model, sgd(model), rank, size)
    same_parameters(model, alone(size))


@CELLS.cell("FSDP2, f32")
def single(rank: int, size: int) -> None:
    model = _sharded(network(torch.float32), mesh=_mesh(size))
    train(model, sgd(model), rank, size, 1, torch.float32)
    same_parameters(model, alone(size, 1, torch.float32))


@CELLS.cell("FSDP2, rows that ranks do not divide")
def uneven(rank: int, size: int) -> None:
    """Blocks of 5 features: some shards are shorter, of biases some are empty with four ranks."""
    model = _sharded(network(hidden=5), mesh=_mesh(size))
    train(model, sgd(model), rank, size)
    same_parameters(model, alone(size, hidden=5))


@CELLS.cell("FSDP2, MixedPrecisionPolicy bf16, reduced as f32 and as bf16; f16")
def mixed_precision_2(rank: int, size: int) -> None:
    for narrow, reduced in ((torch.bfloat16, torch.float32), (torch.bfloat16, None), (torch.float16, None)):
        policy = MixedPrecisionPolicy(param_dtype=narrow, reduce_dtype=reduced)
        model = _sharded(network(torch.float32), mesh=_mesh(size), mp_policy=policy)
        inputs, weights = (share(t, rank, size) for t in batch(0, size, torch.float32))
        loss(model(inputs), weights.to(narrow)).float().backward()
        sgd(model).step()
        same_parameters(model, alone(size, 1, torch.float32))


@CELLS.cell("FSDP2, gradients accumulated without and with reduce-scatter")
def accumulation_2(rank: int, size: int) -> None:
    for every_time in (False, True):
        model = _sharded(network(), mesh=_mesh(size))
        rows = [batch(step, size) for step in range(3)]
        for step, pair in enumerate(rows):
            inputs, weights = (share(t, rank, size) for t in pair)
            model.set_requires_gradient_sync(every_time or step == 2)
            loss(model(inputs), weights).backward()
        for parameter, gradient in zip(model.parameters(), gradients(network(), rows), strict=True):
            same(parameter.grad.full_tensor(), gradient, "gradient")


@CELLS.cell("FSDP2, reshard_after_forward: False, and to a number of ranks")
def reshard(rank: int, size: int) -> None:
    for choice in (False, 2):
        model = _sharded(network(), mesh=_mesh(size), reshard_after_forward=choice)
        train(model, sgd(model), rank, size)
        same_parameters(model, alone(size))


def _gradients_with_factor(rank: int, size: int, only_sums: bool) -> None:
    single = torch.float32  # Of f64 FSDP2 only takes sums.
    model = _sharded(network(single), mesh=_mesh(size))
    for module in (*model, model):
        module.set_gradient_divide_factor(2.0 * size)
        module.set_force_sum_reduction_for_comms(only_sums)
    inputs, weights = (share(t, rank, size) for t in batch(0, size, single))
    (2 * loss(model(inputs), weights)).backward()
    whole = gradients(network(single), [batch(0, size, single)])
    for parameter, gradient in zip(model.parameters(), whole, strict=True):
        same(parameter.grad.full_tensor(), gradient, "gradient")


@CELLS.cell("FSDP2, set_gradient_divide_factor (PREMUL_SUM)")
def divide_factor(rank: int, size: int) -> None:
    _gradients_with_factor(rank, size, only_sums=False)


@CELLS.cell("FSDP2, set_force_sum_reduction_for_comms")
def only_sums(rank: int, size: int) -> None:
    _gradients_with_factor(rank, size, only_sums=True)


@CELLS.cell("FSDP2, explicit prefetch and unshard(async_op=True)")
def prefetch(rank: int, size: int) -> None:
    model = _sharded(network(), mesh=_mesh(size))
    blocks = list(model)
    for before, after in zip(blocks, blocks[1:]):
        before.set_modules_to_forward_prefetch([after])
        after.set_modules_to_backward_prefetch([before])
    optimizer = sgd(model)
    handles = [block.unshard(async_op=True) for block in blocks]
    for handle in handles:
        handle.wait()
    train(model, optimizer, rank, size)
    same_parameters(model, alone(size))


@CELLS.cell("FSDP2, sharded by columns (shard_placement_fn)")
def placement(rank: int, size: int) -> None:
    model = _sharded(network(), mesh=_mesh(size),
                     shard_placement_fn=lambda parameter: Shard(1) if parameter.ndim == 2 else Shard(0))
    train(model, sgd(model), rank, size)
    same_parameters(model, alone(size))


@CELLS.cell("FSDP2, memory of the process group (set_allocate_memory_from_process_group_for_comm)")
def group_memory(rank: int, size: int) -> None:
    model = _sharded(network(), mesh=_mesh(size))
    for module in (*model, model):
        module.set_allocate_memory_from_process_group_for_comm(True)
    train(model, sgd(model), rank, size)
    same_parameters(model, alone(size))


@CELLS.cell("FSDP2, clip_grad_norm_ and AdamW")
def clip(rank: int, size: int) -> None:
    model = _sharded(network(), mesh=_mesh(size))
    inputs, weights = (share(t, rank, size) for t in batch(0, size))
    loss(model(inputs), weights).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    whole = gradients(network(), [batch(0, size)])
    expected = torch.linalg.vector_norm(torch.stack([g.norm() for g in whole]))
    close(norm.full_tensor(), expected, terms=sum(g.numel() for g in whole), what="norm")
    torch.optim.AdamW(model.parameters()).step()


@CELLS.cell("HSDP: fully_shard over a 2-D mesh", sizes=(4,))
def hsdp(rank: int, size: int) -> None:
    for dtype, steps in ((torch.float64, 2), (torch.float32, 1)):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        model = _sharded(network(dtype), mesh=mesh)
        train(model, sgd(model), rank, size, steps, dtype)
        same_parameters(model, alone(size, steps, dtype))


@CELLS.cell("HSDP, accumulation with reduce-scatter only (set_requires_all_reduce)", sizes=(4,))
def hsdp_accumulation(rank: int, size: int) -> None:
    model = _sharded(network(), mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    rows = [batch(step, size) for step in range(2)]
    for step, pair in enumerate(rows):
        inputs, weights = (share(t, rank, size) for t in pair)
        model.set_requires_all_reduce(step == 1)
        loss(model(inputs), weights).backward()
    for parameter, gradient in zip(model.parameters(), gradients(network(), rows), strict=True):
        same(parameter.grad.full_tensor(), gradient, "gradient")


@CELLS.cell("FSDP2 on meshes of size 1, and of some ranks", sizes=(4,))
def part_of_the_ranks(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    model = _sharded(network(), mesh=mesh["b"])
    train(model, sgd(model), rank % 2, 2)
    same_parameters(model, alone(2))


@CELLS.cell("FSDP2, weights that one rank has (broadcast of a full state dict)")
def full_state(rank: int, size: int) -> None:
    from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict,
                                                         set_model_state_dict)

    model = _sharded(network(), mesh=_mesh(size))
    given = alone(2).state_dict() if rank == 0 else {}
    set_model_state_dict(model, given, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    same_parameters(model, alone(2))
    back = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        for name, tensor in alone(2).state_dict().items():
            same(back[name], tensor, name)


