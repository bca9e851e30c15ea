"""What each value of a program is, and what each operation costs: run once on tensors without numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from .program import Form, Program, Unservable, form_of, function_of, with_values


@dataclass
class Facts:
    forms: dict[int, Form] = field(default_factory=dict)  # of values that are one tensor
    storages: dict[int, int] = field(default_factory=dict)  # equal where values share memory
    time: list[float] = field(default_factory=list)  # by operation: FLOPs, or elements written
    kept_bytes: list[float] = field(default_factory=list)  # by operation: what it makes anew


def fake_tensor(form: Form) -> torch.Tensor:
    """In a FakeTensorMode."""
    made = torch.empty_strided(form.shape, form.stride, dtype=form.dtype)
    return made.requires_grad_() if form.requires_grad else made


def facts_of(program: Program, source_forms: list[Form], trains: bool) -> Facts:
    """Unservable names an operation that does not run without numbers."""
    facts = Facts()
    values: list[Any] = []
    with torch.random.fork_rng(devices=[]), FakeTensorMode(), torch.set_grad_enabled(trains):
        for form in source_forms:
            values.append(fake_tensor(form))
            _note(facts, len(values) - 1, values[-1])
        held = {facts.storages[number] for number in range(len(values))}
        for operation in program.operations:
            counter = FlopCounterMode(display=False)
            args = with_values(operation.args, lambda value: values[value])
            kwargs = with_values(operation.kwargs, lambda value: values[value])
            try:
                with torch.set_grad_enabled(trains and operation.gradients), counter:
                    made = function_of(operation.target)(*args, **kwargs)
            except Exception as error:
                raise Unservable(
                    f"{operation.name} ({operation.target}) does not run without numbers: {error}"
                ) from error
            values.append(made)
            fresh = [one for one in _tensors(made) if _storage(one) not in held]
            held |= {_storage(one) for one in fresh}
            elements = sum(one.numel() for one in fresh)
            facts.time.append(counter.get_total_flops() + elements)
            facts.kept_bytes.append(sum(one.numel() * one.element_size() for one in fresh))
            if isinstance(made, torch.Tensor):
                _note(facts, len(values) - 1, made)
    return facts


def _note(facts: Facts, value: int, tensor: torch.Tensor) -> None:
    facts.forms[value] = form_of(tensor)
    facts.storages[value] = _storage(tensor)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _tensors(made: Any) -> list[torch.Tensor]:
    if isinstance(made, torch.Tensor):
        return [made]
    return [one for one in made if isinstance(one, torch.Tensor)] if isinstance(made, (tuple, list)) else []
