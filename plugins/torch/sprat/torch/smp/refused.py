"""Names of SMP's that are not here, each with what to use instead."""

REFUSED = {
    "MoEConfig": "experts over ranks are not served: torch.distributed.all_to_all_single exchanges "
                 "what they work on; models with experts run under DistributedModel",
    "set_expert_parallelism": "experts over ranks are not served, as MoEConfig",
    "nn.FlashAttentionLayer": "its kernels need CUDA: torch.nn.functional.scaled_dot_product_attention "
                              "chooses such a kernel where there is one",
}


def refusal(name: str) -> AttributeError:
    """What to raise for a name that is not here."""
    if name in REFUSED:
        return AttributeError(f"smp.{name} is not served: {REFUSED[name]}")
    return AttributeError(f"smp has no {name!r}: docs/smp/names.md lists its names")
