"""Pieces as Python functions: their operations one after the other, values dropped after their last use."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .pieces import Piece
from .program import BUFFER, GETITEM, PARAMETER, Operation, Program, Use, function_of


class Compiled:
    """call(values of sources, values of inputs) returns those of outputs."""

    def __init__(self, program: Program, piece: Piece, number: int):
        writer = _Writer(program, piece, number)
        self.call: Callable[[Sequence[Any], Sequence[Any]], tuple] = writer.function()
        self.file = writer.file
        self._names = writer.names
        self._modules = list(dict.fromkeys(writer.modules))

    def where(self, error: BaseException) -> str:
        """The operation that raised, as place() has it; or the empty text."""
        traceback, found = error.__traceback__, ""
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == self.file:
                found = self.place(traceback.tb_lineno)
            traceback = traceback.tb_next
        return found

    def place(self, line: int) -> str:
        """The operation of that line, behind the module that it is of or comes after; or the empty text."""
        return self._names.get(line, "")

    def modules(self) -> str:
        """Whose values the piece takes, from first to last; or the empty text."""
        ends = list(dict.fromkeys([*self._modules[:1], *self._modules[-1:]]))
        return f"module{'s' * (len(ends) > 1)} {' to '.join(map(repr, ends))}" if ends else ""


class _Writer:
    def __init__(self, program: Program, piece: Piece, number: int):
        self._program, self._piece = program, piece
        self.file = f"<piece {number} at {id(piece):x}>"
        self.names: dict[int, str] = {}  # of operations, by line
        self._module = ""  # the one whose values an operation took last
        self.modules: list[str] = []  # in the order of the operations that take their values
        self._known: dict[str, Any] = {"no_gradients": torch.no_grad}
        self._lines: list[str] = []

    def function(self) -> Callable:
        piece, program = self._piece, self._program
        self._add("def piece(sources, inputs):")
        for names, values in (("sources", piece.sources), ("inputs", piece.inputs)):
            if values:
                self._add("    " + ", ".join(map(_name, values)) + f", = {names}")
        last = self._last_uses()
        for number in piece.operations:
            self._operation(number)
            gone = [_name(v) for v in program.operations[number].uses() if last.get(v) == number]
            if program.value_of(number) not in last and program.value_of(number) not in piece.outputs:
                gone.append(_name(program.value_of(number)))
            if gone:
                self._add("    " + " = ".join(gone) + " = None")
        self._add("    return (" + "".join(f"{_name(value)}, " for value in piece.outputs) + ")")
        text = "\n".join(self._lines)
        exec(compile(text, self.file, "exec"), self._known)
        linecache.cache[self.file] = (len(text), None, text.splitlines(True), self.file)
        return self._known["piece"]

    def _add(self, line: str) -> None:
        self._lines.append(line)

    def _last_uses(self) -> dict[int, int]:
        """By value, the last operation that takes it; none of outputs, which are returned."""
        last: dict[int, int] = {}
        for number in self._piece.operations:
            for value in self._program.operations[number].uses():
                last[value] = number
        return {value: one for value, one in last.items() if value not in self._piece.outputs}

    def _operation(self, number: int) -> None:
        operation = self._program.operations[number]
        target = _name(self._program.value_of(number))
        if operation.target == GETITEM:
            values, index = operation.args
            call = f"{self._text(values)}[{index}]"
        else:
            function = operation.target.replace(".", "_")
            # The overload's own function: a Python frame less for each operation.
            overload = function_of(operation.target)
            self._known[function] = getattr(overload, "_op", overload)
            given = [self._text(one) for one in operation.args]
            given += [f"{key}={self._text(one)}" for key, one in operation.kwargs.items()]
            call = f"{function}({', '.join(given)})"
        if operation.gradients:
            self._add(f"    {target} = {call}")
        else:
            self._add("    with no_gradients():")
            self._add(f"        {target} = {call}")
        self.names[len(self._lines)] = f"{self._place(operation)}operation {operation.name} ({operation.target})"

    def _place(self, operation: Operation) -> str:
        """By the model's values that operations take, since a graph does not know of modules."""
        takes = [source.name.rpartition(".")[0] for source in map(self._program.source_of, operation.uses())
                 if source is not None and source.kind in (PARAMETER, BUFFER)]
        self._module = next(iter(takes), self._module)
        self.modules += takes
        return f"{'' if takes else 'behind '}module {self._module!r}, " if self._module else ""

    def _text(self, argument: Any) -> str:
        if isinstance(argument, Use):
            return _name(argument.value)
        if isinstance(argument, list):
            return "[" + ", ".join(map(self._text, argument)) + "]"
        if isinstance(argument, tuple):
            return "(" + "".join(self._text(one) + ", " for one in argument) + ")"
        if argument is None or type(argument) in (bool, int, str):
            return repr(argument)
        name = f"constant_{len(self._known)}"  # a float may be inf, a dtype has no literal
        self._known[name] = argument
        return name


def _name(value: int) -> str:
    return f"v{value}"
