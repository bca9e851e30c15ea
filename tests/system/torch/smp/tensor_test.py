"""Tests of tensor parallelism: layers against plain ones, models over tensor and pipeline ranks.

Use: python tests/system/torch/smp/tensor_test.py. Needs torch, transformers and sprat.torch.
"""

from __future__ import annotations

import functools
import pathlib
import sys
import tempfile
import unittest
from typing import Any, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from launch import Ranks, values_of
from split_test import said
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional

SIZES = dict(num_layers=2, num_attention_heads=4, attention_head_size=8, hidden_size=32,
             intermediate_size=64, vocab_size=50, num_positions=16, attention_dropout_prob=0.0,
             hidden_dropout_prob=0.0)
BATCH, WORDS = 8, 12
EPSILON = torch.finfo(torch.float32).eps


def close(got: torch.Tensor, want: torch.Tensor, terms: int) -> bool:
    """Sums of `terms` products in another order, several of them one behind another."""
    return bool((got - want).abs().max() <= 16 * terms**0.5 * EPSILON * max(1.0, float(want.abs().max())))


def begin(tensor: int, pipeline: int = 1, **more: Any) -> Any:
    import sprat.torch.smp as smp

    smp.init({"tensor_parallel_degree": tensor, "pipeline_parallel_degree": pipeline, "ddp": True,
              "prescaled_batch": True, **more})
    torch.manual_seed(5)
    return smp


def words(number: int) -> torch.Tensor:
    return torch.randint(50, (BATCH, WORDS), generator=torch.Generator().manual_seed(number))


# Layers.


def plain_head(head: Any, state: dict, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The logits of DistributedTransformerLMHead, by whole weights and functions alone."""
    options = head.options
    hidden = functional.embedding(ids, state["word_embedding.weight"])
    hidden = hidden + state["position_embedding.weight"][: ids.shape[1]]
    for index in range(options.num_layers):
        of = f"transformer.seq_layers.{index}."

        def linear(x: torch.Tensor, name: str) -> torch.Tensor:
            return functional.linear(x, state[of + name + ".weight"], state[of + name + ".bias"])

        def norm(x: torch.Tensor, name: str) -> torch.Tensor:
            if of + name + ".weight" not in state:
                return x
            weight, bias = state[of + name + ".weight"], state[of + name + ".bias"]
            return functional.layer_norm(x, weight.shape, weight, bias, options.layernorm_epsilon)

        x = norm(hidden, "attention.border.pre_layernorm")
        q, k, v = (linear(x, f"attention.{name}").view(*x.shape[:2], 4, 8).transpose(1, 2)
                   for name in ("query", "key", "value"))
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        y = linear(y.transpose(1, 2).reshape(*x.shape[:2], 32), "attention.dense") + hidden
        hidden = norm(y, "attention.border.post_layernorm")
        x = norm(hidden, "output.border.pre_layernorm")
        y = linear(functional.gelu(linear(x, "output.dense1")), "output.dense2") + hidden
        hidden = norm(y, "output.border.post_layernorm")
    if "layernorm.weight" in state:
        hidden = functional.layer_norm(hidden, (32,), state["layernorm.weight"], state["layernorm.bias"])
    return functional.linear(hidden, state["word_embedding.weight"])


def whole_state(module: nn.Module, gradients: bool = False) -> dict:
    from sprat.torch.smp.tensor.cut_parameters import dim_of, whole_of

    found = {}
    for name, one in module.named_parameters():
        value = one.grad if gradients else one.detach()
        found[name] = whole_of(value, *dim_of(one)) if dim_of(one) else value
    return found


def layers(pre: bool, causal: bool, optimize: str, rank: int, size: int) -> list[str]:
    """SMP's language model over all ranks, forward and gradients, against whole weights."""
    smp = begin(size, optimize=optimize)
    head = smp.nn.DistributedTransformerLMHead(
        **SIZES, pre_layernorm=pre, post_layernorm=not pre, causal_mask_size=16 if causal else None)
    ids, wrong = words(1), []
    mask = torch.zeros(BATCH, 1, 1, WORDS)
    mask[:, :, :, 9:] = -1e4
    logits = head((ids, mask))
    state = {name: one.requires_grad_() for name, one in whole_state(head).items()}
    full = mask
    if causal:
        ahead = torch.ones(WORDS, WORDS, dtype=torch.bool).triu(1)
        full = mask + torch.zeros(WORDS, WORDS).masked_fill(ahead, torch.finfo(torch.float32).min)
    want = plain_head(head, state, ids, full)
    if not close(logits, want, 64):
        wrong.append(f"logits differ by {(logits - want).abs().max()}")
    target = torch.randn(logits.shape, generator=torch.Generator().manual_seed(2))
    (logits * target).sum().backward()
    (want * target).sum().backward()
    for name, gradient in whole_state(head, gradients=True).items():
        if not close(gradient, state[name].grad, 64 * BATCH * WORDS):
            wrong.append(f"gradient of {name}: {(gradient - state[name].grad).abs().max()}")
    with_labels = head((ids, mask, None, None, ids))
    if with_labels.shape != ():
        wrong.append("labels give no loss")
    return wrong


def dropped(optimize: str, rank: int, size: int) -> torch.Tensor:
    """A block in training, and the random numbers that come after it."""
    smp = begin(size, optimize=optimize)
    layer = smp.nn.DistributedTransformerLayer(
        **{**SIZES, "attention_dropout_prob": 0.25, "hidden_dropout_prob": 0.25})
    output = layer((torch.randn(2, 8, 32), None))[0]
    return torch.cat([output.detach().flatten(), torch.rand(3)])


def cross_attention(optimize: str, positions: int, rank: int, size: int) -> Any:
    """Shapes, and gradients of the states that are attended to, on every rank the same."""
    smp = begin(size, optimize=optimize)
    layer = smp.nn.DistributedTransformerLayer(**SIZES, add_cross_attention=True, use_alibi=True,
                                               fp32_residual_addition=True)
    generator = torch.Generator().manual_seed(3)
    hidden, states = (torch.randn(2, n, 32, generator=generator, requires_grad=True) for n in (positions, 7))
    output = layer((hidden, states, None, None))
    output[0].square().sum().backward()
    return [tuple(output[0].shape), len(output), hidden.grad, states.grad]


def values(seeds_differ: bool, rank: int, size: int) -> dict:
    """Initial values of whole parameters: of marked layers, and of SMP's. Where seeds differ, of cut ones."""
    from sprat.torch.smp.tensor.cut_parameters import dim_of

    smp = begin(size)
    others = rank * seeds_differ  # as scripts of SMP seed by dp_rank
    torch.manual_seed(5 + others)
    with smp.tensor_parallelism():
        net = nn.Sequential(nn.Embedding(6, 8), nn.Linear(8, 12), nn.Linear(12, 3))
    model = smp.DistributedModel(net)
    torch.manual_seed(6 + others)
    head = smp.nn.DistributedTransformerLMHead(**SIZES)
    cut = [type(one).__name__ for one in model.distributed_modules()]
    found = {"cut": cut}
    for module in (model.module, head):
        parameters = dict(module.named_parameters())
        found |= {name: value for name, value in whole_state(module).items()
                  if not seeds_differ or dim_of(parameters[name])}
    return found


def asked(rank: int, size: int) -> dict[str, Any]:
    """What a model says of layers that its script has made, marked, and left alone."""
    smp = begin(size)

    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.own = smp.nn.DistributedTransformerLayer(**SIZES)
            self.whole = nn.Linear(8, 8)
            with smp.tensor_parallelism():
                self.marked, self.llama = nn.Linear(8, 8), llama()

    model = smp.DistributedModel(Around())
    names = {module: name for name, module in model.module.named_modules()}
    scaled = dict(model.scaled_batch_reducer_named_parameters())
    default = dict(model.default_reducer_named_parameters())
    return {"modules": [names[one] for one in model.distributed_modules()],
            "kinds": [type(one).__name__ for one in model.distributed_modules()],
            "scaled": sorted(scaled), "default": sorted(default),
            "cut among default": [n for n, one in default.items() if model.is_distributed_parameter(one)],
            "all": sorted(name for name, _ in model.named_parameters())}


def embeds(rank: int, size: int) -> list[str]:
    """Options of SMP's embedding against nn.Embedding of the same weight, forward and gradient."""
    smp = begin(size)
    weight, wrong = torch.randn(6, 8), []
    ids = torch.tensor([[1, 2, 2, 3], [0, 2, 5, 1]])
    for options in ({}, {"padding_idx": 2}, {"scale_grad_by_freq": True}):
        cut = smp.nn.DistributedEmbedding(6, 8, _weight=weight.clone(), **options)
        whole = nn.Embedding(6, 8, _weight=weight.clone(), **options)
        slope = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(1))
        for one in (cut, whole):
            (one(ids) * slope).sum().backward()
        if not torch.equal(cut(ids), whole(ids)):
            wrong.append(f"{options}: values")
        if not torch.equal(whole_state(cut, gradients=True)["weight"], whole.weight.grad):
            wrong.append(f"{options}: gradient")
    made = whole_state(smp.nn.DistributedEmbedding(400, 8, padding_idx=3, initializer_range=0.5))["weight"]
    if made[3].any() or not 0.4 < made.std() < 0.6:  # of 3192 values
        wrong.append(f"initial values: deviation {made.std()}")
    wrong.append(said(lambda: smp.nn.DistributedEmbedding(6, 8, max_norm=1.0)))
    return wrong


class OfTheirs(nn.Module):
    """A layer that takes a configuration, as SMP's documentation registers one."""

    def __init__(self, config: dict):
        super().__init__()
        self.config = config


def registered_by_configuration(rank: int, size: int) -> Any:
    smp = begin(size)
    smp.tp_register_with_module(OfTheirs, smp.nn.DistributedTransformer,
                                init_hook=lambda config: ((), config))
    with smp.tensor_parallelism(fused_softmax=False, of_other_layers=1, num_layers=3):
        net = nn.Sequential(OfTheirs({**SIZES, "architectures": ["Theirs"]}))
    made = smp.DistributedModel(net).module[0]
    said_of = said(lambda: smp.tp_register(nn.Linear)(OfTheirs))
    return type(made).__name__, len(made.seq_layers), said_of


def registered(rank: int, size: int) -> Any:
    """A layer of the user's own, with hooks."""
    smp = begin(size)

    class Double(nn.Module):
        def __init__(self, width: int):
            super().__init__()
            self.inner = nn.Linear(width, width)

        def forward(self, x: torch.Tensor, times: float) -> dict:
            return {"y": self.inner(x) * times}

    smp.tp_register_with_module(
        Double, smp.nn.DistributedLinear, lambda width: ((width, width), {}),
        lambda x, times: ((x * times,), {}), lambda y: {"y": y})
    with smp.tensor_parallelism():
        net = nn.Sequential(Double(8))
    model = smp.DistributedModel(net)
    kinds = [type(one).__name__ for one in model.module.modules()]
    return kinds, tuple(model.module[0].inside.weight.shape), list(model.module[0](torch.ones(2, 8), 2.0))


# Models.


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.layers = nn.ModuleList(nn.Sequential(
            nn.LayerNorm(16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)) for _ in range(4))
        self.head = nn.Linear(16, 50)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32, use_cache=False))


def loss_of(output: Any, targets: torch.Tensor) -> torch.Tensor:
    logits = output if isinstance(output, torch.Tensor) else output.logits
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def plain(make: Any, steps: int, clip: float) -> tuple[list, dict]:
    torch.manual_seed(5)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        for part, target in zip(words(step).chunk(4), words(step + 50).chunk(4)):
            loss = loss_of(model(part), target) / 4
            loss.backward()
            losses.append(loss.detach() * 4)
        losses.append(nn.utils.clip_grad_norm_(model.parameters(), clip))
        optimizer.step()
    return losses, model.state_dict()


class Over(NamedTuple):
    """How ranks share a model."""

    tensor: int
    pipeline: int = 1
    shares: int = 1
    at: str = "step"  # when shares are gathered


def trains(name: str, first: Over, then: Over, own_batches: bool, folder: str, rank: int, size: int) -> list[str]:
    """Six steps over tensor, pipeline and sharing ranks against one rank; the last three resumed, in `then`."""
    make = {"net": Net, "llama": llama}[name]
    want_losses, want = plain(make, 6, 0.5)
    losses: list = []
    wrong: list[str] = []
    for begin_at, over in ((0, first), (3, then)):
        # Ranks of one stage that read rows of their own.
        readers = over.shares * (over.tensor if own_batches else 1)
        smp = begin(over.tensor, over.pipeline, microbatches=4 // readers, prescaled_batch=not own_batches,
                    sharded_data_parallel_degree=over.shares, sdp_gradient_clipping=0)
        reader = smp.dp_rank() if own_batches else smp.rdp_rank()
        with smp.tensor_parallelism():
            net = make()
        model = smp.DistributedModel(net, shard_at=over.at)
        optimizer = smp.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        if begin_at:
            smp.resume_from_checkpoint(folder, partial=False)
            with torch.no_grad():
                model(words(0).chunk(readers)[reader])
            wrong += differences(model.state_dict(gather_to_rank0=False), torch.load(f"{folder}/three"))
            wrong += differences(moments(optimizer.state_dict(gather_to_rank0=False)),
                                 moments(torch.load(f"{folder}/optimizer_three")))

        @smp.step
        def train(model: Any, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            loss = loss_of(model(ids), targets)
            model.backward(loss)
            return loss

        for step in range(begin_at, begin_at + 3):
            optimizer.zero_grad()
            ids, targets = words(step), words(step + 50)
            ids, targets = (one.chunk(readers)[reader] for one in (ids, targets))
            losses += train(model, ids, targets).outputs
            losses.append(torch.tensor(optimizer.clip_master_grads(0.5)))
            optimizer.step()
        if not begin_at:
            smp.save_checkpoint(folder, "three", partial=False)
            smp.barrier()
            make().load_state_dict(torch.load(f"{folder}/three"))  # by PyTorch alone
        if over.tensor > 1 and not (model.distributed_modules() and any(
                model.is_distributed_parameter(one) for one in model.local_parameters())):
            wrong.append("nothing is cut")
        if over.at == "blocks" and not any(isinstance(one, FSDPModule) for one in model.local_modules()):
            wrong.append("FSDP2 has no block")
    if len(losses) == len(want_losses) and not all(map(functools.partial(close, terms=256), losses, want_losses)):
        wrong.append(f"losses {losses}, not {want_losses}")
    got = model.state_dict(gather_to_rank0=False)
    wrong += [f"{key} by {(got[key] - want[key]).abs().max()}" for key in want
              if not close(got[key], want[key], 6 * 4096)]
    return wrong


def differences(got: dict, want: dict) -> list[str]:
    """Names of values of a checkpoint that are not what was saved."""
    return [f"loaded {name}" for name, value in want.items() if not torch.equal(got[name], value)]


def moments(state: dict) -> dict:
    return {name: one["momentum_buffer"] for name, one in state["state"].items()}


def language_model(tensor: int, pipeline: int, optimize: str, vocab: int, rank: int, size: int) -> tuple:
    """Three steps of SMP's own, with dropout: losses of micro-batches, and the whole state."""
    smp = begin(tensor, pipeline, microbatches=2, optimize=optimize)
    drops = {"attention_dropout_prob": 0.1, "hidden_dropout_prob": 0.1}

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = smp.nn.DistributedTransformerLMHead(**{**SIZES, **drops, "vocab_size": vocab},
                                                             causal_mask_size=16)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.inner((ids,))

    model = smp.DistributedModel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @smp.step
    def train(model: Any, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = loss_of(model(ids), targets)
        model.backward(loss)
        return loss

    torch.manual_seed(7)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        losses += train(model, words(step), words(step + 50)).outputs
        optimizer.step()
    return losses, model.state_dict(gather_to_rank0=False), set(model.assignment.values())


def kept_bytes(optimize: str, rank: int, size: int) -> int:
    """Of activations that autograd keeps of four blocks, each storage once."""
    smp = begin(size, optimize=optimize)
    model = smp.nn.DistributedTransformer(**{**SIZES, "num_layers": 4, "hidden_dropout_prob": 0.1})
    storages: dict[int, int] = {}

    def pack(one: torch.Tensor) -> torch.Tensor:
        if not isinstance(one, nn.Parameter):
            storages[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
        return one

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
        kept = model((torch.randn(2, 16, 32, requires_grad=True), None))
    del kept
    return sum(storages.values())


def begin_training(over: Over) -> tuple[Any, Any, Any]:
    """`smp`, a model over `over`'s ranks, and its step."""
    smp = begin(over.tensor, over.pipeline, microbatches=2, sharded_data_parallel_degree=over.shares)
    with smp.tensor_parallelism():
        net = Net()
    model = smp.DistributedModel(net, shard_at=over.at)
    smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    @smp.step
    def train(model: Any, ids: torch.Tensor) -> torch.Tensor:
        loss = loss_of(model(ids), ids)
        model.backward(loss)
        return loss

    return smp, model, train


def fails(over: Over, rank: int, size: int) -> str:
    """A module of the last stage raises, on all its ranks; the next step trains."""
    smp, model, train = begin_training(over)

    train(model, words(0))
    hook = None
    if smp.pp_rank() == 1:

        def breaks(*_: Any) -> None:
            raise KeyError("no such key")

        own = [one for _, one in model.local_named_modules()
               if type(one).__name__ in ("DistributedLinear", "Linear")]
        hook = own[0].register_forward_pre_hook(breaks)
    text = said(lambda: train(model, words(0)))
    if hook:
        hook.remove()
    return text + f" | {len(train(model, words(0)).outputs)}"


def fails_alone(over: Over, direction: str, raising: int, rank: int, size: int) -> tuple[str, str]:
    """One rank raises while its neighbour is in the collective; what a step says then, and the next."""
    _, model, train = begin_training(over)

    def breaks(*_: Any) -> None:
        raise KeyError(f"no such key on {rank}")

    train(model, words(0))
    if rank == raising:  # of the last stage
        own = next(one for one in model.local_modules()
                   if isinstance(one, FSDPModule) or type(one).__name__ == "DistributedLinear")
        # Before FSDP2's own hook, which gathers the block.
        hook = (own.register_forward_pre_hook(breaks, prepend=True) if direction == "forward" else
                own.register_full_backward_pre_hook(breaks))
    text = said(lambda: train(model, words(0)))
    if rank == raising:
        hook.remove()
    return text, said(lambda: train(model, words(0)))


def refuses_heads(rank: int, size: int) -> str:
    smp = begin(size)
    with smp.tensor_parallelism():
        net = llama()  # 2 heads of keys
    return said(lambda: smp.DistributedModel(net))


class Tensor(unittest.TestCase):
    def test_smp_layers_compute_what_whole_ones_do(self):
        for size in (1, 2, 4):
            for pre, causal, optimize in ((False, False, "speed"), (True, True, "speed"),
                                          (False, False, "memory"), (True, True, "memory")):
                with self.subTest(size=size, pre=pre, causal=causal, optimize=optimize):
                    self.assertEqual(values_of(size, functools.partial(layers, pre, causal, optimize)),
                                     [[]] * size)

    def test_dropout_does_not_depend_on_the_number_of_ranks(self):
        alone = values_of(1, functools.partial(dropped, "speed"))[0]
        for size, optimize in ((2, "speed"), (4, "speed"), (2, "memory"), (4, "memory")):
            for got in values_of(size, functools.partial(dropped, optimize)):
                self.assertTrue(close(got, alone, 64), f"{size} ranks: {(got - alone).abs().max()}")

    def test_cross_attention_gives_all_ranks_the_same_gradients(self):
        for optimize, positions in (("speed", 5), ("memory", 5), ("memory", 6)):
            with self.subTest(optimize=optimize, positions=positions):
                task = functools.partial(cross_attention, optimize, positions)
                alone = values_of(1, task)[0]
                for one in values_of(2, task):
                    self.assertEqual(one[:2], alone[:2])
                    self.assertTrue(close(one[2], alone[2], 64 * 32) and close(one[3], alone[3], 64 * 32))

    def test_initial_values_do_not_depend_on_the_number_of_ranks(self):
        alone = values_of(1, functools.partial(values, False))[0]
        for size, seeds_differ in ((2, False), (4, False), (2, True), (4, True)):
            for one in values_of(size, functools.partial(values, seeds_differ)):
                kinds = one.pop("cut")
                self.assertEqual(kinds, ["DistributedEmbedding", "DistributedLinear", "DistributedLinear"])
                self.assertGreater(len(one), 15)
                self.assertEqual([k for k in one if not torch.equal(one[k], alone[k])], [], (size, seeds_differ))

    def test_a_model_tells_which_layers_are_cut_whoever_made_them(self):
        for told in values_of(2, asked):
            block = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                     "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
            llama_layers = [f"llama.model.layers.{i}.{name}" for i in (0, 1) for name in block]
            self.assertEqual(told["modules"], ["own", "marked", *llama_layers, "llama.lm_head"])
            self.assertEqual(told["kinds"][2:9], ["ColumnLinear"] * 3 + ["RowLinear"] + ["ColumnLinear"] * 2
                             + ["RowLinear"])  # by its own plan, though it is inside of another model
            self.assertEqual(told["cut among default"], [])
            self.assertEqual(sorted(told["scaled"] + told["default"]), told["all"])
            self.assertIn("own.output.dense2.bias", told["scaled"])
            self.assertIn("llama.model.norm.weight", told["default"])

    def test_a_registered_layer_takes_the_place(self):
        for kinds, shape, keys in values_of(2, registered):
            self.assertEqual(kinds, ["Sequential", "_Adapted", "DistributedLinear"])
            self.assertEqual((shape, keys), ((8, 4), ["y"]))

    def test_a_configuration_and_a_context_may_say_more_than_a_layer_takes(self):
        for name, layers_, text in values_of(2, registered_by_configuration):
            self.assertEqual((name, layers_), ("DistributedTransformer", 3))
            self.assertIn("derive it from smp.nn.DistributedModule", text)

    def test_an_embedding_takes_what_smp_s_does(self):
        for size in (1, 2):
            for wrong in values_of(size, embeds):
                self.assertEqual(len(wrong), 1, wrong)
                self.assertIn("max_norm = 1.0", wrong[0])

    def test_models_train_as_on_one_rank(self):
        """Also FSDP2 under a pipeline and tensor ranks; checkpoints load under other degrees, the same bits."""
        for name, first, then, own in (
                ("net", Over(2, 2), Over(2, 2), False), ("llama", Over(2), Over(1, 2), False),
                ("llama", Over(2, 2), Over(2, 2), False), ("net", Over(2), Over(2), True),
                ("net", Over(2, 2), Over(2, 2), True),
                ("net", Over(2, 1, 2), Over(2, 1, 2, "blocks"), False),
                ("llama", Over(1, 2, 2, "blocks"), Over(1, 2, 2), False),
                ("llama", Over(2, 2, 2, "blocks"), Over(1, 2, 4, "blocks"), False)):
            with self.subTest(name, first=first, then=then, own=own), tempfile.TemporaryDirectory() as folder:
                task = functools.partial(trains, name, first, then, own, folder)
                size = first.tensor * first.pipeline * first.shares
                self.assertEqual(values_of(size, task), [[]] * size)

    def test_smp_s_language_model_trains_as_on_one_rank(self):
        wants = {vocab: values_of(1, functools.partial(language_model, 1, 1, "speed", vocab))[0]
                 for vocab in (50, 4000)}  # the second embedding is longer than all else
        for tensor, pipeline, optimize, vocab in ((2, 1, "speed", 50), (2, 1, "memory", 50), (2, 2, "memory", 50),
                                                  (2, 2, "speed", 50), (1, 3, "memory", 4000)):
            with self.subTest(tensor=tensor, pipeline=pipeline, optimize=optimize, vocab=vocab):
                task = functools.partial(language_model, tensor, pipeline, optimize, vocab)
                want_losses, want, _ = wants[vocab]
                for losses, state, ranks in values_of(tensor * pipeline, task):
                    self.assertEqual(ranks, set(range(pipeline)))
                    self.assertTrue(all(close(a, b, 256) for a, b in zip(losses, want_losses, strict=True)))
                    self.assertEqual([k for k in want if not close(state[k], want[k], 3 * 4096)], [])

    def test_memory_keeps_less_of_activations_than_speed(self):
        bytes_of = {optimize: values_of(4, functools.partial(kept_bytes, optimize))[0]
                    for optimize in ("speed", "memory")}
        self.assertLess(bytes_of["memory"], bytes_of["speed"])

    def test_an_error_of_a_stage_is_told_to_all_and_the_next_step_trains(self):
        """Whichever of a stage's tensor ranks hears of it first, they leave after the same collective."""
        with Ranks("sprat", 4, timeout=8) as ranks:
            for over in (Over(2, 2), Over(1, 2, 2, "blocks")):
                for one in ranks.run(functools.partial(fails, over), deadline=60, grace=40):
                    self.assertRegex(one.error or one.value, r"rank 1 of the pipeline, .*no such key.*\| 2")

    def test_an_error_of_one_rank_of_a_stage_ends_the_step_on_all_at_once(self):
        """Its neighbour waits for it in a collective, whose deadline is far; the next step says that it cannot be."""
        with Ranks("sprat", 4, timeout=300) as ranks:
            for over, direction, raising in ((Over(4), "forward", 2), (Over(2, 2), "forward", 3),
                                             (Over(2, 2), "backward", 2), (Over(1, 2, 2, "blocks"), "forward", 3)):
                for report in ranks.run(functools.partial(fails_alone, over, direction, raising), deadline=100):
                    self.assertEqual(report.error, "", ranks.tail(40))
                    text, next_text = report.value
                    stage = over.pipeline - 1
                    named = rf"rank {stage} of the pipeline, rank {raising} of all: .*no such key on {raising}"
                    self.assertRegex(text, "^" + named)
                    self.assertRegex(next_text, "ended with an earlier step .*" + named)

    def test_heads_that_do_not_divide_are_named(self):
        for text in values_of(4, refuses_heads):
            self.assertIn("num_key_value_heads = 2, which tensor_parallel_degree = 4 does not divide", text)


if __name__ == "__main__":
    unittest.main()
