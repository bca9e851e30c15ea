"""Checks docs/mission.md: every row has a test that exists or a reason, every rule of sprat plan has a row."""

from __future__ import annotations

import re
from pathlib import Path

from pages import ROOT, is_command, lines_of, pages, tables
from references import Known

PAGE = "docs/mission.md"
# A sentence needs as many letters.
LEAST_REASON = 20


def spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def names_in_use() -> str:
    """Where names of the middle column must occur: other pages, public headers, the Python package, the trainer."""
    files = [ROOT / page for page in pages() if page != PAGE]
    for folder, kind in (("include", "*.h*"), ("plugins/torch/sprat", "*.py"), ("train/config", "*.cpp"), ("mp", "*.def")):
        files += (ROOT / folder).rglob(kind)
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def wrong_names(cell: str, corpus: set[str]) -> list[str]:
    """Words of the middle column that nothing else knows."""
    return [word for span in spans(cell) if not is_command(span)
            for word in re.findall(r"[A-Za-z_]\w{2,}", span) if word not in corpus]


def wrong_row(number: int, cells: list[str], known: Known, corpus: set[str]) -> list[str]:
    where = f"{PAGE}:{number}: {cells[0][:60]}"
    wrong = [f"{where}: nothing but this page knows {word}" for word in wrong_names(cells[-2], corpus)]
    held = cells[-1]
    # Figures have two columns: what is said of them stands in the second.
    references = [span for span in spans(held) if not is_command(span) or "/" in span.split()[0]]
    references = [span for span in references if re.match(r"(cell|plan): |torch/|tests/|bench/|[A-Za-z_]+\.[\w.,]+$", span)]
    wrong += [f"{where}: {span}: {why}" for span in references if (why := known.missing(span))]
    reason = held.partition("no: ")[2]
    if not references and len(reason) < LEAST_REASON:
        wrong.append(f"{where}: neither a test nor a reason")
    return wrong


def check(binaries: Path, build: Path) -> list[str]:
    known = Known(binaries, build)
    corpus = set(re.findall(r"[A-Za-z_]\w{2,}", names_in_use()))
    wrong, rows = [], 0
    for number, cells in tables(PAGE):
        if len(cells) not in (2, 3):
            wrong.append(f"{PAGE}:{number}: {len(cells)} cells")
        elif cells[0].startswith("`") and len(cells) == 2 or cells[0] == "no:":
            continue  # what the last column means
        else:
            rows += 1
            wrong += wrong_row(number, cells, known, corpus)
    told = {span[6:] for line in lines_of(PAGE) for span in spans(line) if span.startswith("plan: ")}
    wrong += [f"{PAGE} names no row for the rule {rule} of sprat plan" for rule in sorted(known.rules - told)]
    print(f"{PAGE}: {rows} rows, {len(known.unit)} unit tests, {len(known.ctest)} tests of ctest's, {len(wrong)} wrong")
    return wrong
