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
    version: str = ""  # as __version__, of the library's release whose names these are


_SMP = "sprat.torch.smp"
_EXPERTS = ("experts over ranks are not served: torch.distributed.all_to_all_single exchanges what "
            "they work on; models with experts run under smp.DistributedModel")
_TRANSFORMER = "take the layer of transformers; transform() cuts it by the model's own plan"
_FLASH = "call torch.nn.functional.scaled_dot_product_attention"
_SEQUENCES = "sequences are not cut over ranks; shorten them, or raise hybrid_shard_degree"
_KEEPING = "save by state_dict_saver.save, and delete old folders in the script"
_SAVER = _SMP + ".state_dict_saver"
_GROUPS = {name: f"{_SMP}:CommGroup.{name}" for name in
           ("WORLD", "MP_GROUP", "DP_GROUP", "TP_GROUP", "PP_GROUP", "RDP_GROUP")}

_V2 = {
    "torch.sagemaker": Served(
        names={"init": "sprat.sagemaker.configuration:init_v2",
               "transform": f"{_SMP}:transform", "state": f"{_SMP}:state"},
        refused={"MoEConfig": _EXPERTS}, version="2.8.0"),
    "torch.sagemaker.delayed_param": Served({"DelayedParamIniter": f"{_SMP}:DelayedParamIniter"}),
    "torch.sagemaker.grad_norm": Served(
        {"clip_grad_norm_": "sprat.sagemaker.gradients:clip_grad_norm_"}),
    "torch.sagemaker.logger": Served({"get_logger": "sprat.sagemaker.configuration:get_logger"}),
    "torch.sagemaker.utils": Served(),
    "torch.sagemaker.utils.process_group_utils": Served(
        {"get_global_ranks": "torch.distributed:get_process_group_ranks"}),
    "torch.sagemaker.distributed": Served(),
    "torch.sagemaker.distributed.checkpoint": Served(),
    "torch.sagemaker.distributed.checkpoint.state_dict_saver": Served(
        {name: f"{_SAVER}:{name}" for name in
         ("save", "async_save", "maybe_finalize_async_calls", "AsyncCallsQueue")}),
    "torch.sagemaker.distributed.checkpoint.async_utils": Served(
        {"AsyncCallsQueue": f"{_SAVER}:AsyncCallsQueue"}),
    "torch.sagemaker.distributed.checkpoint.state_dict_loader": Served(
        {"load": f"{_SMP}.state_dict_loader:load"}),
    "torch.sagemaker.distributed.checkpoint.filesystem": Served(
        {"DistributedFileSystemReader": "torch.distributed.checkpoint:FileSystemReader",
         "DistributedFileSystemWriter": "torch.distributed.checkpoint:FileSystemWriter"}),
    "torch.sagemaker.checkpoint": Served(otherwise=_KEEPING),
    "torch.sagemaker.checkpoint.utils": Served(otherwise=_KEEPING),
    "torch.sagemaker.moe": Served(otherwise=_EXPERTS),
    "torch.sagemaker.moe.moe_config": Served(otherwise=_EXPERTS),
    "torch.sagemaker.moe.moe_layer": Served(otherwise=_EXPERTS),
    "torch.sagemaker.tensor_parallel": Served(otherwise=_TRANSFORMER),
    "torch.sagemaker.tensor_parallel.transformer": Served(otherwise=_TRANSFORMER),
    "torch.sagemaker.context_parallel": Served(otherwise=_SEQUENCES),
    "torch.sagemaker.context_parallel.utils": Served(otherwise=_SEQUENCES),
    "torch.sagemaker.nn": Served(otherwise=_FLASH),
    "torch.sagemaker.nn.attn": Served(otherwise=_FLASH),
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
        names={"init": "sprat.sagemaker.configuration:init_v1", **_GROUPS}, forward=_SMP),
    "smdistributed.modelparallel.torch.nn": Served(forward=f"{_SMP}.nn"),
    "smdistributed.modelparallel.torch.nn.huggingface": Served(),
    **_TRANSLATIONS,
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
