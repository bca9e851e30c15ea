"""What ranks of a pipeline tell each other: plain values in one header, tensors behind it."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree


@dataclass
class Message:
    """kind says what it is for. Between ranks of a pipeline: begin, forward, backward, result, finished,
    end. Between tensor parallel ranks: seed, run, heard. Last of all, on both: bye or failed."""

    kind: str
    source: int = -1  # the sender's rank on the wire that brought it; filled in there
    call: tuple[int, int] = (-1, -1)  # (rank that asked, its number): which question this answers
    microbatch: int = -1
    module: str = ""
    value: Any = None  # a tree; tensors inside travel as tensors
    generator: torch.Tensor | None = None  # the micro-batch's random state
    modes: dict[str, Any] = field(default_factory=dict)  # of autograd and autocast
    of_peer: bool = False  # from another tensor parallel rank of this stage; the wire fills it in


# The last words.
ENDINGS = ("bye", "failed")
# A group, as all its ranks call it: by their numbers in the world, or by its name.
GroupKey = tuple[int | str, ...]
# Operations of groups that a rank has begun.
Begun = dict[GroupKey, int]


@dataclass(frozen=True)
class LastWord:
    """The value of bye, failed and heard."""

    text: str = ""  # which rank failed, and its error: of the first that the sender has heard of
    begun: Begun = field(default_factory=dict)  # by the sender, who begins nothing more in this step


@dataclass(frozen=True)
class _Place:
    """Stands in the tree for the tensor of that number."""

    number: int


@dataclass(frozen=True)
class TensorForm:
    """What a receiver needs to make room for a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool


def pack(message: Message) -> tuple[bytes, list[torch.Tensor]]:
    """The header and the tensors, contiguous. ValueError names what cannot be pickled."""
    tensors: list[torch.Tensor] = []
    numbers: dict[int, int] = {}

    def placed(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        # The same tensor twice is one tensor there too: code may ask `a is b`.
        number = numbers.setdefault(id(leaf), len(tensors))
        if number == len(tensors):
            tensors.append(leaf)
        return _Place(number)

    value = pytree.tree_map(placed, message.value)
    if message.generator is not None:
        tensors.append(message.generator)
    forms = [TensorForm(tuple(t.shape), t.dtype, t.requires_grad) for t in tensors]
    plain = (message.kind, message.call, message.microbatch, message.module, message.modes,
             message.generator is not None, forms)
    try:
        header = pickle.dumps((plain, value), protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise ValueError(
            f"module {message.module!r}, micro-batch {message.microbatch}: what goes to another "
            f"rank must be tensors and values that pickle: {error}"
        ) from error
    return header, [t.detach().contiguous() for t in tensors]


@dataclass
class Opened:
    """A header that has come, before its tensors have."""

    plain: tuple
    value: Any

    @property
    def forms(self) -> list[TensorForm]:
        """Of the tensors that follow."""
        return self.plain[-1]


def open_header(header: Any) -> Opened:
    """header: anything with bytes in it."""
    return Opened(*pickle.loads(header))


def unpack(opened: Opened, tensors: list[torch.Tensor], source: int) -> Message:
    """The message again; tensors that required a gradient there are leaves that do here."""
    kind, call, microbatch, module, modes, has_generator, forms = opened.plain
    generator = tensors.pop() if has_generator else None
    for tensor, form in zip(tensors, forms):
        if form.requires_grad:
            tensor.requires_grad_()
    value = pytree.tree_map(
        lambda leaf: tensors[leaf.number] if isinstance(leaf, _Place) else leaf, opened.value
    )
    return Message(kind, source, call, microbatch, module, value, generator, modes)
