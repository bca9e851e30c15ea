"""The table: which modules of SageMaker's libraries there are, and where their names come from."""

from __future__ import annotations

from dataclasses import dataclass, field

ROOTS = ("torch.sagemaker", "smdistributed")
PAGE = "docs/frameworks/sagemaker.md lists what is"


@dataclass(frozen=True)
class Served:
    """A module. A name that is in none of these raises an error with the sentence `otherwise`."""

    names: dict[str, str] = field(default_factory=dict)  # "module:attribute", or "module"
    refused: dict[str, str] = field(default_factory=dict)  # and what to use instead
    forward: str = ""  # the module that has every other name
    otherwise: str = ""
    first: str = ""  # "module:function" that its import calls
    version: str = ""  # as __version__, of the library's release whose names these are


_SMP = "sprat.torch.smp"
_CONFIGURATION = "sprat.sagemaker.configuration"
_CHECKPOINTS = "sprat.sagemaker.checkpoints"
_SHARED = "sprat.sagemaker.deepspeed_names"
_EXPERTS = ("experts over ranks are not served: torch.distributed.all_to_all_single exchanges what "
            "they work on; models with experts run under smp.DistributedModel")
_TRANSFORMER = "take the layer of transformers; transform() cuts it by the model's own plan"
_FLASH = "call torch.nn.functional.scaled_dot_product_attention"
_SEQUENCES = "sequences are not cut over ranks; shorten them, or raise hybrid_shard_degree"
_LOCAL = ("a checkpoint of each rank's own part is not served: state_dict_saver.save writes parts that "
          "any other number of ranks loads")
_SAVER = _SMP + ".state_dict_saver"

_V2 = {
    "torch.sagemaker": Served(
        names={"init": f"{_CONFIGURATION}:init_v2", "is_initialized": f"{_SMP}:is_initialized",
               "transform": f"{_SMP}:transform", "state": f"{_SMP}:state"},
        refused={"MoEConfig": _EXPERTS}, first="sprat.sagemaker.fsdp:change_fsdp", version="2.8.0"),
    "torch.sagemaker.delayed_param": Served({"DelayedParamIniter": f"{_SMP}:DelayedParamIniter"}),
    "torch.sagemaker.grad_norm": Served(
        {"clip_grad_norm_": "sprat.sagemaker.gradients:clip_grad_norm_"}),
    "torch.sagemaker.logger": Served({"get_logger": f"{_CONFIGURATION}:get_logger"}),
    "torch.sagemaker.utils": Served(),
    "torch.sagemaker.utils.utils": Served({"timeit": "sprat.sagemaker.modules:timeit"}),
    "torch.sagemaker.utils.module_utils": Served(
        {name: f"sprat.sagemaker.modules:{name}" for name in
         ("empty_module_params", "move_buffers_to_device")}),
    "torch.sagemaker.utils.process_group_utils": Served(
        {"get_global_ranks": "torch.distributed:get_process_group_ranks"}),
    "torch.sagemaker.distributed": Served(),
    "torch.sagemaker.distributed.checkpoint": Served(),
    "torch.sagemaker.distributed.checkpoint.state_dict_saver": Served(
        {name: f"{_SAVER}:{name}" for name in
         ("save", "async_save", "maybe_finalize_async_calls", "AsyncCallsQueue")}
        | {"PyTorchDistSaveShardedStrategy": f"{_CHECKPOINTS}:PyTorchDistSaveShardedStrategy"}),
    "torch.sagemaker.distributed.checkpoint.state_dict_utils": Served(otherwise=_LOCAL),
    "torch.sagemaker.distributed.checkpoint.async_utils": Served(
        {"AsyncCallsQueue": f"{_SAVER}:AsyncCallsQueue"}),
    "torch.sagemaker.distributed.checkpoint.state_dict_loader": Served(
        {"load": f"{_SMP}.state_dict_loader:load"}),
    "torch.sagemaker.distributed.checkpoint.filesystem": Served(
        {"DistributedFileSystemReader": "torch.distributed.checkpoint:FileSystemReader",
         "DistributedFileSystemWriter": "torch.distributed.checkpoint:FileSystemWriter"}),
    "torch.sagemaker.checkpoint": Served(),
    "torch.sagemaker.checkpoint.utils": Served(
        {"SORT_BY_LAST_INT": f"{_CHECKPOINTS}:by_last_int",
         "limit_num_subdirs": f"{_CHECKPOINTS}:limit_num_subdirs"}),
    "torch.sagemaker.moe": Served(otherwise=_EXPERTS),
    "torch.sagemaker.moe.moe_config": Served(otherwise=_EXPERTS),
    "torch.sagemaker.moe.moe_layer": Served(otherwise=_EXPERTS),
    "torch.sagemaker.tensor_parallel": Served(otherwise=_TRANSFORMER),
    "torch.sagemaker.tensor_parallel.transformer": Served(otherwise=_TRANSFORMER),
    "torch.sagemaker.context_parallel": Served(otherwise=_SEQUENCES),
    "torch.sagemaker.context_parallel.utils": Served(otherwise=_SEQUENCES),
    "torch.sagemaker.nn": Served(otherwise=_FLASH),
    "torch.sagemaker.nn.attn": Served(otherwise=_FLASH),
    "torch.sagemaker.nn.huggingface": Served(otherwise=_FLASH),
    "torch.sagemaker.nn.huggingface.llama_flashattn": Served(otherwise=_FLASH),
}

_FAMILIES = ("bert", "gpt2", "gptj", "gptneo", "gptneox", "roberta", "t5", "vit")
_TRANSLATIONS = {
    f"smdistributed.modelparallel.torch.nn.huggingface.{family}": Served(dict.fromkeys(
        (f"translate_state_dict_to_hf_{family}",
         f"translate_hf_state_dict_to_smdistributed_{family}"),
        "sprat.sagemaker.translation:unchanged"))
    for family in _FAMILIES
}

_V1 = {
    "smdistributed": Served(),
    "smdistributed.modelparallel": Served(version="1.15.0"),
    "smdistributed.modelparallel.torch": Served(
        names={"init": f"{_CONFIGURATION}:init_v1", "DistributedModel": f"{_SHARED}:DistributedModel",
               "DistributedOptimizer": f"{_SHARED}:DistributedOptimizer"}, forward=_SMP),
    "smdistributed.modelparallel.torch.nn": Served(forward=f"{_SMP}.nn"),
    "smdistributed.modelparallel.torch.nn.huggingface": Served(),
    **_TRANSLATIONS,
    "smdistributed.modelparallel.torch.patches": Served(),
    "smdistributed.modelparallel.torch.patches.checkpoint": Served(forward=f"{_SMP}.recomputation"),
    "smdistributed.modelparallel.torch.amp": Served(forward=f"{_SMP}.amp"),
    "smdistributed.modelparallel.torch.optimizers": Served(forward=f"{_SMP}.optimizers"),
    "smdistributed.modelparallel.tensorflow": Served(
        otherwise="Sprat has no part for TensorFlow; sprat partition plans a GraphDef"),
}

_DATA_PARALLEL = "sprat.sagemaker.data_parallel"
_SMDDP = {
    "smdistributed.dataparallel": Served(version="2.3.0"),
    "smdistributed.dataparallel.torch": Served(),
    # Its import makes the backend's name known, and take_the_place_of has done that.
    "smdistributed.dataparallel.torch.torch_smddp": Served(
        otherwise='call torch.distributed, with the backend "smddp"'),
    "smdistributed.dataparallel.torch.distributed": Served(
        {name: f"{_DATA_PARALLEL}:{name}" for name in
         ("init_process_group", "get_local_rank", "all_reduce", "ReduceOp")},
        forward="torch.distributed"),
    "smdistributed.dataparallel.torch.parallel": Served(
        {"DistributedDataParallel": f"{_DATA_PARALLEL}:DistributedDataParallel"}),
    "smdistributed.dataparallel.torch.parallel.distributed": Served(
        {"DistributedDataParallel": f"{_DATA_PARALLEL}:DistributedDataParallel"}),
    "smdistributed.dataparallel.tensorflow": Served(
        otherwise="Sprat has no part for TensorFlow"),
}

MODULES: dict[str, Served] = _V2 | _V1 | _SMDDP

# Libraries for CUDA that AWS's scripts import whether they use them or not; only where they are not
# installed.
_ABSENT = "sprat.sagemaker.absent"
_ENGINE = "Transformer Engine is not installed and needs CUDA: leave out fp8 (--fp8 0)"
_MEGATRON = "Megatron is not installed, and of it this alone is answered; pip install megatron-core"
ABSENT: dict[str, Served] = {
    "transformer_engine": Served(otherwise=_ENGINE),
    "transformer_engine.common": Served(otherwise=_ENGINE),
    "transformer_engine.common.recipe": Served(
        {name: f"{_ABSENT}:{name}" for name in ("Format", "DelayedScaling")}, otherwise=_ENGINE),
    "megatron": Served(otherwise=_MEGATRON),
    "megatron.core": Served(otherwise=_MEGATRON),
    "megatron.core.dist_checkpointing": Served(otherwise=_MEGATRON),
    "megatron.core.dist_checkpointing.mapping": Served(
        {"CheckpointingException": f"{_ABSENT}:CheckpointingException"}, otherwise=_MEGATRON),
}
