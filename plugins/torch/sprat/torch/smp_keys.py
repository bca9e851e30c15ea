"""The configuration keys of SMP v2 and v1: one table for parsing, error texts and documentation.

Sources, named in each row:
reference  AWS docs, distributed-model-parallel-v2-reference
general    aws/sagemaker-python-sdk, doc/api/training/smd_model_parallel_general.rst
validator  aws/sagemaker-python-sdk, src/sagemaker/fw_utils.py, validate_mp_config
sharded    AWS docs, model-parallel-extended-features-pytorch-sharded-data-parallelism
examples   aws/amazon-sagemaker-examples, archived/smp-gpt-sharded-data-parallel

Use: `python smp_keys.py` prints the tables of docs/pytorch.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

UNLIMITED = float("inf")
PLACEMENTS = ("cluster", "spread", "DPT", "DTP", "PDT", "PTD", "TDP", "TPD")


@dataclass(frozen=True)
class Derived:
    """A default that follows from other keys."""

    text: str
    value: Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class Key:
    """One configuration key of one generation of SMP.

    served: every legal value is carried out. Otherwise only the default is taken, and `how` says
    what to do instead.
    """

    generation: str
    source: str
    name: str
    kind: type
    default: Any
    served: bool
    how: str
    low: float = -UNLIMITED
    high: float = UNLIMITED
    choices: tuple[str, ...] = ()

    def legal(self) -> str:
        """The values that SMP takes, in words."""
        if self.choices:
            return ", ".join(f'"{choice}"' for choice in self.choices)
        words = {int: "integer", float: "number", bool: "true or false", str: "text"}[self.kind]
        if self.high < UNLIMITED:
            return f"{words} from {self.low:g} to {self.high:g}"
        return words if self.low == -UNLIMITED else f"{words}, at least {self.low:g}"

    def default_text(self) -> str:
        """The default, in words."""
        if isinstance(self.default, Derived):
            return self.default.text
        if self.default is None:
            return "none"
        if self.kind is int and self.default >= 1_000_000:
            return f"{self.default:.0e}".replace("e+0", "e")
        return str(self.default).lower() if self.kind is bool else str(self.default)


NO_PIPELINE = "keep the default; `torch.distributed.pipelining` runs over this backend"
NO_PARTITION = "remove it: with one pipeline stage nothing is partitioned"
NO_MODE = "remove it: known from examples only"
OFFLOAD = (
    "wrap checkpointed layers in `offload_wrapper` of"
    " `torch.distributed.algorithms._checkpoint.checkpoint_wrapper`"
)
TENSOR_AXIS = (
    'the axis "tensor" of `state.mesh`, to which the script applies `parallelize_module`;'
    " the ranks of one tensor-parallel group get the same batch"
)

# fmt: off
KEYS: tuple[Key, ...] = (
    Key("v2", "reference", "hybrid_shard_degree", int, 0, True,
        "ranks that share one copy of the model; 0: as many as there are, 1: no sharding", low=0),
    Key("v2", "reference", "sm_activation_offloading", bool, True, True,
        "whose implementation a script's `offload_wrapper` gets; here it is torch's in both cases"),
    Key("v2", "reference", "activation_loading_horizon", int, 2, False,
        "remove it: torch's `offload_wrapper` loads an input when its layer's backward starts",
        low=1),
    Key("v2", "reference", "fsdp_cache_flush_warnings", bool, True, True,
        "about the caching allocator of GPUs; nothing warns of it, so both values do the same"),
    Key("v2", "reference", "allow_empty_shards", bool, False, True,
        "`fully_shard` pads parameters that do not divide, so both values do the same"),
    Key("v2", "reference", "tensor_parallel_degree", int, 1, True, TENSOR_AXIS, low=1),
    Key("v2", "reference", "context_parallel_degree", int, 1, False,
        "keep 1; `torch.distributed.tensor.experimental.context_parallel` splits sequences", low=1),
    Key("v2", "reference", "expert_parallel_degree", int, 1, False,
        "keep 1; `torch.distributed.all_to_all_single` can exchange what experts work on", low=1),
    Key("v2", "reference", "random_seed", int, None, True,
        "seeds torch, the same on every rank; `tensor_parallel_random()` draws from a stream of"
        " seed + tensor-parallel rank", low=0),

    Key("v1", "general", "pipeline_parallel_degree", int, 1, False, NO_PIPELINE, low=1),
    Key("v1", "general", "partitions", int, 1, False,
        NO_PIPELINE + " (an older name of `pipeline_parallel_degree`)", low=1),
    Key("v1", "general", "microbatches", int, 1, False,
        "keep 1 and add up gradients in the script (`model.set_requires_gradient_sync(False)`)",
        low=1),
    Key("v1", "general", "active_microbatches", int,
        Derived("pipeline_parallel_degree + 2", lambda v: v["pipeline_parallel_degree"] + 2),
        False, NO_PIPELINE, low=1),
    Key("v1", "validator", "pipeline", str, "interleaved", False, NO_PIPELINE,
        choices=("interleaved", "simple", "_only_forward")),
    Key("v1", "general", "optimize", str, "memory", False,
        "remove it: the plan given to `parallelize_module` says what is distributed",
        choices=("memory", "speed")),
    Key("v1", "general", "placement_strategy", str, "cluster", True,
        "order of the mesh's axes over ranks, the right-most letter fastest", choices=PLACEMENTS),
    Key("v1", "general", "auto_partition", bool, True, False, NO_PARTITION),
    Key("v1", "general", "default_partition", int, 0, False, NO_PARTITION, low=0),
    Key("v1", "general", "contiguous", bool, True, False, NO_PARTITION),
    Key("v1", "general", "horovod", bool, False, False,
        "remove it and set `ddp`: Horovod is for TensorFlow"),
    Key("v1", "general", "ddp", bool, False, True,
        "what needs it is checked; `shard` reduces over data-parallel ranks either way"),
    Key("v1", "validator", "ddp_port", int, None, False,
        "set the variable MASTER_PORT instead: ranks meet there", low=0),
    Key("v1", "sharded", "ddp_dist_backend", str, "auto", False,
        'call `torch.distributed.init_process_group("nccl")` before `init`, which then uses it',
        choices=("auto", "nccl")),
    Key("v1", "general", "memory_weight", float,
        Derived('0.2 if optimize is "speed", else 0.8',
                lambda v: 0.2 if v["optimize"] == "speed" else 0.8),
        False, NO_PARTITION, low=0, high=1),
    Key("v1", "validator", "load_partition", bool, False, False, NO_PARTITION),
    Key("v1", "validator", "partition_file", str, None, False, NO_PARTITION),
    Key("v1", "general", "deterministic_server", bool, False, True,
        "there is no execution server: ranks issue operations in the script's order"),
    Key("v1", "general", "tensor_parallel_degree", int, 1, True, TENSOR_AXIS, low=1),
    Key("v1", "general", "prescaled_batch", bool, False, True,
        "tensor parallelism needs true: the ranks of a tensor-parallel group get the same batch"),
    Key("v1", "general", "shard_optimizer_state", bool, False, False,
        "use `sharded_data_parallel_degree`, which shards optimizer state too, or"
        " `ZeroRedundancyOptimizer`"),
    Key("v1", "general", "offload_activations", bool, False, False, OFFLOAD),
    Key("v1", "general", "activation_loading_horizon", int, 4, False,
        "remove it: it counts pipeline tasks, and there is no pipeline", low=1),
    Key("v1", "general", "skip_tracing", bool, False, True,
        "models are never traced, so both values do the same"),
    Key("v1", "general", "fp16", bool, False, False,
        "pass `mp_policy=MixedPrecisionPolicy(param_dtype=torch.float16)` to `shard` and scale"
        " the loss"),
    Key("v1", "general", "fp16_params", bool, False, False,
        "make the layers with `dtype=torch.float16`"),
    Key("v1", "sharded", "bf16", bool, False, True,
        "`shard` computes and reduces in bfloat16, unless it is given another `mp_policy`"),
    Key("v1", "sharded", "sharded_data_parallel_degree", int, 1, True,
        "ranks that share one copy of the model (MiCS); 1: no sharding", low=1),
    Key("v1", "sharded", "sdp_reduce_bucket_size", int, 500_000_000, False,
        "remove it: gradients are reduced block by block, as `shard` groups them", low=1),
    Key("v1", "sharded", "sdp_param_persistence_threshold", int, 1_000_000, False,
        "remove it: small parameters are sharded along with their block", low=0),
    Key("v1", "sharded", "sdp_max_live_parameters", int, 1_000_000_000, False,
        "remove it; `reshard_after_forward` of `shard` says what stays gathered", low=1),
    Key("v1", "sharded", "sdp_hierarchical_allgather", bool, True, True,
        "the backend chooses in how many stages it gathers; results are the same"),
    Key("v1", "sharded", "sdp_gradient_clipping", float, 1.0, True,
        "L2 norm that `clip_gradients(model)` clips to, before `optimizer.step()`", low=0),
    Key("v1", "sharded", "delayed_parameter_initialization", bool, False, False,
        'make the model under `torch.device("meta")`, then `shard`, `to_empty` and initialise'),
    Key("v1", "examples", "fast_mode", bool, None, False, NO_MODE),
    Key("v1", "examples", "static_mode", bool, None, False, NO_MODE),
)
# fmt: on


def keys_of(generation: str) -> dict[str, Key]:
    """The keys of "v1" or "v2" by name."""
    return {key.name: key for key in KEYS if key.generation == generation}


def table(generation: str) -> str:
    """The keys of a generation as a Markdown table; the source is a word of this file's head."""
    lines = [
        "| key | values | default | served | what it does here, or what to do instead | source |",
        "|---|---|---|---|---|---|",
    ]
    for key in keys_of(generation).values():
        served = "yes" if key.served else "default only"
        cells = (f"`{key.name}`", key.legal(), key.default_text(), served, key.how, key.source)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table("v2"), table("v1"), sep="\n\n")
