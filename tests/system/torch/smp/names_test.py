"""Every public name of SMP's is served, or refused by a sentence: the table of docs/smp/names.md.

Use: python tests/system/torch/smp/names_test.py; with --markdown it prints the table.
The names: aws/sagemaker-python-sdk, doc/api/training/smp_versions/latest, and AWS docs,
distributed-model-parallel-v2-reference. Names of modules are those of `import torch.sagemaker`, which --sagemaker answers.
"""

from __future__ import annotations

import functools
import pathlib
import sys
import unittest
from typing import Any

import sprat.torch.smp as smp
from sprat.sagemaker.finder import _found
from sprat.sagemaker.names import MODULES
from sprat.torch.smp.refused import REFUSED

PAGE = pathlib.Path(__file__).resolve().parents[4] / "docs/smp/names.md"
NAMES = {
    "v1, training": "init is_initialized is_tracing step StepOutput.outputs StepOutput.reduce_mean StepOutput.reduce_sum "
    "StepOutput.concat StepOutput.stack StepOutput.merge StepOutput.accumulate DistributedModel DistributedOptimizer partition set_partition "
    "tensor_parallelism set_tensor_parallelism tp_register tp_register_with_module model_creation "
    "delay_param_initialization checkpoint checkpoint_sequential set_activation_checkpointing "
    "amp.GradScaler optimizers.FusedLamb optimizers.FusedNovoGrad",
    "v1, DistributedModel": " ".join("DistributedModel." + name for name in (
        "forward backward get_module local_parameters local_named_parameters local_buffers "
        "local_named_buffers local_modules local_named_modules local_state_dict state_dict "
        "load_state_dict register_post_partition_hook cpu join register_comm_hook partitioned "
        "distributed_modules is_distributed_parameter is_scaled_batch_parameter "
        "is_distributed_buffer is_scaled_batch_buffer "
        "default_reducer_named_parameters scaled_batch_reducer_named_parameters").split()),
    "v1, DistributedOptimizer": " ".join("DistributedOptimizer." + name for name in (
        "step zero_grad state_dict local_state_dict load_state_dict clip_master_grads").split()),
    "v1, ranks and groups": "rank size local_rank local_size tp_rank tp_size pp_rank pp_size "
    "rdp_rank rdp_size mp_rank mp_size dp_rank dp_size get_world_process_group "
    "get_tp_process_group get_pp_process_group get_rdp_process_group get_mp_process_group "
    "get_dp_process_group get_mp_group get_dp_group get_tp_group get_pp_group get_rdp_group WORLD MP_GROUP DP_GROUP TP_GROUP "
    "PP_GROUP RDP_GROUP CommGroup.WORLD CommGroup.MP_GROUP "
    "CommGroup.DP_GROUP CommGroup.TP_GROUP CommGroup.PP_GROUP CommGroup.RDP_GROUP "
    "RankType.WORLD_RANK RankType.MP_RANK RankType.DP_RANK RankType.TP_RANK RankType.PP_RANK "
    "RankType.RDP_RANK",
    "v1, objects": "broadcast send recv_from allgather barrier mp_barrier dp_barrier pp_barrier "
    "tp_barrier rdp_barrier",
    "v1, checkpoints": "save load save_checkpoint resume_from_checkpoint",
    "v1, layers": " ".join("nn." + name for name in (
        "DistributedLinear DistributedEmbedding DistributedAttentionLayer "
        "DistributedTransformerOutputLayer DistributedTransformerLayer DistributedTransformer "
        "DistributedTransformerLMHead DistributedModule FusedLayerNorm FlashAttentionLayer").split()),
    "v1, modules": "smdistributed.modelparallel.torch.patches.checkpoint.checkpoint "
    "smdistributed.modelparallel.torch.patches.checkpoint.checkpoint_sequential "
    "smdistributed.modelparallel.torch.nn.huggingface.gpt2.translate_state_dict_to_hf_gpt2 "
    "smdistributed.modelparallel.torch.nn.huggingface.gpt2.translate_hf_state_dict_to_smdistributed_gpt2",
    "v2": "init is_initialized transform state.hybrid_shard_degree state.rank state.world_size "
    "state.rep_rank_process_group state.tensor_parallel_degree state.tp_size state.tp_rank "
    "state.tp_process_group MoEConfig DelayedParamIniter DelayedParamIniter.get_param_init_fn "
    "DelayedParamIniter.get_post_param_init_fn "
    "DelayedParamIniter.validate_params_and_buffers_inited offload_wrapper state_dict_saver.save "
    "state_dict_saver.async_save state_dict_saver.maybe_finalize_async_calls "
    "state_dict_saver.AsyncCallsQueue state_dict_loader.load",
    "v2, modules": " ".join("torch.sagemaker." + name for name in (
        "delayed_param.DelayedParamIniter moe.moe_config.MoEConfig nn.attn.FlashSelfAttention "
        "nn.attn.FlashGroupedQueryAttention nn.huggingface.llama_flashattn.LlamaFlashAttention "
        "distributed.checkpoint.state_dict_saver.async_save distributed.checkpoint.state_dict_saver.save "
        "distributed.checkpoint.state_dict_saver.maybe_finalize_async_calls distributed.checkpoint.state_dict_loader.load "
        "utils.module_utils.empty_module_params utils.module_utils.move_buffers_to_device").split()),
}


def found(path: str) -> Any:
    """The object, or the AttributeError that says why there is none."""
    module, _, name = path.rpartition(".")
    try:
        if module.partition(".")[0] in ("torch", "smdistributed"):
            return _found(module, MODULES[module], name) if module in MODULES else AttributeError(f"there is no {module}")
        first, _, rest = path.partition(".")
        if first == "state":  # filled by init
            return type(smp.state).__annotations__[rest]
        if path == "StepOutput.outputs":
            return smp.StepOutput([1]).outputs
        return functools.reduce(getattr, path.split("."), smp)
    except AttributeError as error:
        return error


def refused(path: str) -> str:
    """The sentence, or the empty text."""
    module, _, name = path.rpartition(".")
    served = MODULES.get(module)
    if served is None or name in served.names or served.forward:
        return REFUSED.get(path, "")
    return served.refused.get(name, served.otherwise)


def rows() -> list[tuple[str, str, str]]:
    return [(part, path, refused(path) or "served") for part, paths in NAMES.items() for path in paths.split()]


def table() -> str:
    lines = ["| part | name | |", "|---|---|---|"]
    lines += [f"| {part} | `{path}` | {answer} |" for part, path, answer in rows()]
    return "\n".join(lines) + "\n"


class Names(unittest.TestCase):
    def test_each_is_served_or_refused_by_a_sentence(self):
        for _, path, answer in rows():
            with self.subTest(path):
                value = found(path)
                if answer == "served":
                    self.assertNotIsInstance(value, AttributeError, str(value))
                else:
                    self.assertIsInstance(value, AttributeError, f"{path} is refused, and there")
                    self.assertIn(answer, str(value))

    def test_nothing_is_refused_that_smp_does_not_have(self):
        known = {path for _, path, _ in rows()} | {"set_expert_parallelism"}
        self.assertLessEqual(set(REFUSED), known)

    def test_a_name_that_nobody_has_is_none(self):
        self.assertIn("docs/smp/names.md lists", str(found("no_such_name")))

    def test_the_page_has_this_table(self):
        self.assertIn(table(), PAGE.read_text())


if __name__ == "__main__":
    if sys.argv[1:] == ["--markdown"]:
        print(table(), end="")
    else:
        unittest.main()
