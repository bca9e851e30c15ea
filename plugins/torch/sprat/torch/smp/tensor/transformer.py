"""SMP's transformer layers, cut by heads and by inner features over a tensor parallel group.

All take and return what SMP's do, with its names and defaults: whole hidden states, which between
layers lie as sequence.py has it. With one rank they are plain layers of the same arithmetic.
Source: aws/sagemaker-python-sdk, doc/api/training/smp_versions/latest,
smd_model_parallel_pytorch_tensor_parallel.rst.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from . import regions
from .distributed_module import DistributedModule
from .embedding import DistributedEmbedding
from .linear import ColumnLinear, RowLinear, require_divides
from .sequence import Hidden, Norm, as_given, dropped, enter, in_parts, like, values_of

ACTIVATIONS = {"gelu": functional.gelu, "relu": functional.relu}


@dataclass(frozen=True)
class Options:
    """SMP's keywords, of all layers. fused_softmax, fused_bias_gelu: taken; results are the same."""

    num_layers: int = 12
    num_attention_heads: int = 32
    attention_head_size: int = 32
    hidden_size: int = 1024
    intermediate_size: int = 4096
    vocab_size: int = 30522
    num_positions: int = 1024
    attention_dropout_prob: float = 0.1
    hidden_dropout_prob: float = 0.1
    activation: str = "gelu"
    layernorm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    use_normal_initialization: bool = False
    causal_mask_size: int | None = None  # None: every position sees every other
    add_cross_attention: bool = False
    cross_attention: bool = False  # of DistributedAttentionLayer
    pre_layernorm: bool = False
    post_layernorm: bool = True
    num_token_types: int = 0
    add_lm_head: bool = True
    fp32_residual_addition: bool = False
    scale_attention_scores: bool = True
    scale_attn_by_layer_idx: bool = False
    use_alibi: bool = False
    alibi_bias_max: float = 8
    fused_softmax: bool = True
    fused_bias_gelu: bool = False

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation = {self.activation!r}: {' or '.join(ACTIVATIONS)}")
        if not (self.pre_layernorm or self.post_layernorm):
            raise ValueError("pre_layernorm and post_layernorm are both False: set one")
        require_divides("num_attention_heads", self.num_attention_heads)
        require_divides("intermediate_size", self.intermediate_size)


class _OfOptions(DistributedModule):
    """A layer whose keywords are those of Options."""

    @classmethod
    def keywords(cls) -> set[str]:
        return (super().keywords() - {"given"}) | {one.name for one in fields(Options)}


class DistributedAttentionLayer(_OfOptions):
    """Attention with its norms, dropout and residual. (hidden, mask) in, hidden out.

    hidden: [batch, positions, hidden_size]. mask: added to scores, [batch, 1, 1 or positions,
    positions], or None. With cross_attention (hidden, states, mask), where keys and values come
    from states, which are whole.
    """

    def __init__(self, layer_idx: int = 0, **given: Any):
        super().__init__()
        self.options = options = Options(**given)
        inner = options.num_attention_heads * options.attention_head_size
        self.query = ColumnLinear(_linear(options, options.hidden_size, inner), enters=False)
        self.key = ColumnLinear(_linear(options, options.hidden_size, inner), enters=False)
        self.value = ColumnLinear(_linear(options, options.hidden_size, inner), enters=False)
        self.dense = RowLinear(_linear(options, inner, options.hidden_size))
        self.border = _Border(options)
        self._scale = (layer_idx + 1 if options.scale_attn_by_layer_idx else 1) * (
            math.sqrt(options.attention_head_size) if options.scale_attention_scores else 1)

    def forward(self, inputs: tuple) -> Hidden:
        hidden, mask = inputs[0], inputs[-1]
        x = self.border.before(hidden)
        states = enter(inputs[1]) if self.options.cross_attention else x
        query, key, value = (self._heads(layer(from_)) for layer, from_ in (
            (self.query, x), (self.key, states), (self.value, states)))
        scores = query @ key.transpose(-1, -2) / self._scale
        scores = scores + self._biases(scores)
        if mask is not None:
            scores = scores + mask
        weights = self._dropped(scores.softmax(-1))
        context = (weights @ value).transpose(1, 2).flatten(2)
        return self.border.after(self.dense(context, hidden), hidden)

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, this rank's heads, positions, head size]."""
        return x.unflatten(-1, (-1, self.options.attention_head_size)).transpose(1, 2)

    def _dropped(self, weights: torch.Tensor) -> torch.Tensor:
        """Each head drops its own, and the same whatever the number of ranks: all draw all masks."""
        probability = self.options.attention_dropout_prob
        if not self.training or probability == 0:
            return weights
        own = weights.shape[1]
        ones, masks = torch.ones_like(weights[:, 0]), []
        for head in range(self.options.num_attention_heads):
            mask = functional.dropout(ones, probability)
            if head // own == regions.rank():
                masks.append(mask)
        return weights * torch.stack(masks, 1)

    def _biases(self, scores: torch.Tensor) -> torch.Tensor:
        """Of positions: what lies ahead, and, with alibi, what lies far back."""
        queries, keys = scores.shape[-2:]
        bias = scores.new_zeros(1, 1, queries, keys)
        if self.options.causal_mask_size is not None and not self.options.cross_attention:
            ahead = torch.ones(queries, keys, dtype=torch.bool, device=scores.device).triu(1)
            bias = bias.masked_fill(ahead, torch.finfo(scores.dtype).min)
        if self.options.use_alibi:
            heads = self.options.num_attention_heads
            powers = torch.arange(1, heads + 1, device=scores.device) * self.options.alibi_bias_max
            slopes = regions.slice_of(torch.pow(2.0, -powers / heads), 0)
            places = torch.arange(keys, device=scores.device)
            bias = bias + slopes.to(scores.dtype).view(1, -1, 1, 1) * places
        return bias


class DistributedTransformerOutputLayer(_OfOptions):
    """The two linear layers behind attention, with norms, dropout and residual. hidden in and out."""

    def __init__(self, **given: Any):
        super().__init__()
        self.options = options = Options(**given)
        self.dense1 = ColumnLinear(
            _linear(options, options.hidden_size, options.intermediate_size), enters=False)
        self.dense2 = RowLinear(_linear(options, options.intermediate_size, options.hidden_size))
        self.border = _Border(options)

    def forward(self, hidden: Hidden) -> Hidden:
        act = ACTIVATIONS[self.options.activation]
        inner = act(self.dense1(self.border.before(hidden)))
        return self.border.after(self.dense2(inner, hidden), hidden)


class DistributedTransformerLayer(_OfOptions):
    """One block. (hidden, mask) in and out; with add_cross_attention (hidden, states, mask, its)."""

    def __init__(self, layer_idx: int = 0, **given: Any):
        super().__init__()
        options = Options(**given)
        self.attention = DistributedAttentionLayer(layer_idx, **{**given, "cross_attention": False})
        self.cross_attention = (
            DistributedAttentionLayer(layer_idx, **{**given, "cross_attention": True})
            if options.add_cross_attention else None)
        self.output = DistributedTransformerOutputLayer(**given)

    def forward(self, inputs: tuple) -> tuple:
        given, *rest = inputs
        hidden = in_parts(given)
        if self.cross_attention is None:
            hidden = self.attention((hidden, *rest))
        else:
            states, mask, states_mask = rest
            hidden = self.attention((hidden, mask))
            hidden = self.cross_attention((hidden, states, states_mask))
        return (as_given(given, self.output(hidden)), *rest)


class DistributedTransformer(_OfOptions):
    """num_layers blocks, one after another; inputs as DistributedTransformerLayer's."""

    def __init__(self, **given: Any):
        super().__init__()
        number = Options(**given).num_layers
        self.seq_layers = nn.Sequential(
            *(DistributedTransformerLayer(index, **given) for index in range(number)))

    def forward(self, inputs: tuple) -> tuple:
        given, *rest = inputs
        hidden, *rest = self.seq_layers((in_parts(given), *rest))
        return (as_given(given, hidden), *rest)


class DistributedTransformerLMHead(_OfOptions):
    """Embeddings, blocks, and a head tied to the word embedding.

    inputs: (input_ids, attention_mask, token_type_ids, position_ids, labels), from the end on left
    out or None; with add_cross_attention (input_ids, attention_mask, token_type_ids, position_ids,
    states, states_mask, labels). Returns the loss over labels shifted by one, else the logits
    [batch, positions, vocab_size], without a head the hidden states.
    """

    def __init__(self, **given: Any):
        super().__init__()
        self.options = options = Options(**given)
        self.word_embedding = _Words(options.vocab_size, options.hidden_size, _skip_allgather=True,
                                     inside=_embedding(options, options.vocab_size))
        self.position_embedding = (
            None if options.use_alibi else _cut_embedding(options, options.num_positions))
        self.token_type_embedding = (
            _cut_embedding(options, options.num_token_types) if options.num_token_types else None)
        self.dropout = nn.Dropout(options.hidden_dropout_prob)
        self.transformer = DistributedTransformer(**given)
        self.layernorm = (
            nn.LayerNorm(options.hidden_size, options.layernorm_epsilon)
            if options.pre_layernorm else None)

    def forward(self, inputs: tuple) -> torch.Tensor:
        crosses = self.options.add_cross_attention
        names = ["input_ids", "attention_mask", "token_type_ids", "position_ids",
                 *(["states", "states_mask"] if crosses else []), "labels"]
        given = dict(zip(names, [*inputs, *[None] * (len(names) - len(inputs))], strict=True))
        hidden, mask = self._embedded(given), given["attention_mask"]
        rest = (given["states"], mask, given["states_mask"]) if crosses else (mask,)
        hidden = self.transformer((hidden, *rest))[0]
        if self.layernorm is not None:
            hidden = self.layernorm(hidden)
        if not self.options.add_lm_head:
            return hidden
        logits = self.word_embedding(hidden, as_head=True)
        if given["labels"] is None:
            return logits
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), given["labels"][:, 1:].flatten())

    def _embedded(self, given: dict[str, Any]) -> torch.Tensor:
        words = given["input_ids"]
        hidden = self.word_embedding(words)
        if self.position_embedding is not None:
            places = given["position_ids"]
            if places is None:
                places = torch.arange(words.shape[1], device=words.device)
            hidden = hidden + self.position_embedding(places)
        if self.token_type_embedding is not None and given["token_type_ids"] is not None:
            hidden = hidden + self.token_type_embedding(given["token_type_ids"])
        return self.dropout(regions.whole(hidden))


class _Border(nn.Module):
    """What stands before and behind the cut part of a layer: norms, dropout, residual."""

    def __init__(self, options: Options):
        super().__init__()
        self.options = options
        size, epsilon = options.hidden_size, options.layernorm_epsilon
        self.pre_layernorm = Norm(size, epsilon) if options.pre_layernorm else None
        self.post_layernorm = Norm(size, epsilon) if options.post_layernorm else None

    def before(self, hidden: Hidden) -> torch.Tensor:
        """Whole, for the cut part."""
        return enter(hidden if self.pre_layernorm is None else self.pre_layernorm(hidden))

    def after(self, output: torch.Tensor, hidden: Hidden) -> Hidden:
        """Of what the cut part has left in the form of `hidden`."""
        dropped_out = dropped(like(hidden, output), self.options.hidden_dropout_prob, self.training)
        x, residual = values_of(dropped_out), values_of(hidden)
        if self.options.fp32_residual_addition:
            x = (x.float() + residual.float()).to(x.dtype)
        else:
            x = x + residual
        out = like(hidden, x)
        return out if self.post_layernorm is None else self.post_layernorm(out)


class _Words(DistributedEmbedding):
    """The word embedding, and the head that is tied to it: one module, so on one pipeline rank."""

    def forward(self, x: torch.Tensor, as_head: bool = False) -> torch.Tensor:
        if not as_head:
            return super().forward(x)
        return regions.leave(functional.linear(regions.part(x), self.weight))


def _linear(options: Options, inputs: int, outputs: int) -> nn.Linear:
    made = nn.Linear(inputs, outputs)
    if options.use_normal_initialization:
        with torch.no_grad():
            made.weight.normal_(0, options.initializer_range)
            made.bias.zero_()
    return made


def _cut_embedding(options: Options, number: int) -> DistributedEmbedding:
    return DistributedEmbedding(number, options.hidden_size, _skip_allgather=True,
                                inside=_embedding(options, number))


def _embedding(options: Options, number: int) -> nn.Embedding:
    made = nn.Embedding(number, options.hidden_size)
    with torch.no_grad():
        made.weight.normal_(0, options.initializer_range)
    return made
