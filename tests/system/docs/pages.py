"""Pages of Markdown as the tests see them: headings, links, tables, and the lines that people type."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Iterator, NamedTuple

ROOT = Path(__file__).resolve().parents[3]

# Blocks of these languages hold no commands.
OTHER_LANGUAGES = ("c", "cpp", "cmake", "dockerfile", "json", "python", "text", "yaml")


class Line(NamedTuple):
    """A command, and where it stands."""

    page: str  # from the repository's root
    number: int  # of its first line, from 1
    text: str  # continued lines joined, without what follows a #

    def __str__(self) -> str:
        return f"{self.page}:{self.number}: {self.text}"


def pages() -> list[str]:
    """All pages of the repository, from its root; build folders and hidden ones are left out."""
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name != "build" and not name.startswith(".")]
        found += [str((Path(folder) / name).relative_to(ROOT)) for name in files if name.endswith(".md")]
    return sorted(found)


def people_pages() -> list[str]:
    """Those with commands for people: README.md, CONTRIBUTING.md and docs."""
    return [page for page in pages() if "/" not in page or page.startswith("docs/")]


def lines_of(page: str) -> list[str]:
    return (ROOT / page).read_text(encoding="utf-8").split("\n")


def prose(page: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line outside of fenced and indented blocks."""
    fenced = False
    before = ""
    for number, line in enumerate(lines_of(page), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not (line.startswith("    ") and not before.strip()):
            yield number, line
        before = line if not (line.startswith("    ") and not before.strip()) else ""


def anchors(page: str) -> set[str]:
    """What a link's #part may say: GitHub's names of the headings."""
    found: set[str] = set()
    for _, line in prose(page):
        heading = re.match(r"#{1,6} +(.*?) *#*$", line)
        if not heading:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "").replace("*", "")
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        again = 1
        unique = name
        while unique in found:
            unique, again = f"{name}-{again}", again + 1
        found.add(unique)
    return found


def links(page: str) -> Iterator[tuple[int, str]]:
    """Line and target of each link and picture, those to other hosts left out."""
    for number, line in prose(page):
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            if not re.match(r"[a-z]+:", target):
                yield number, target


def tables(page: str) -> Iterator[tuple[int, list[str]]]:
    """Line and cells of each table's rows, without its head."""
    rows = 0
    for number, line in prose(page):
        if not line.startswith("|"):
            rows = 0
            continue
        rows += 1
        if rows > 2:
            yield number, [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def blocks(page: str) -> Iterator[tuple[int, str, list[str]]]:
    """First line's number, language ("" if none, "indented") and lines of each block."""
    lines = lines_of(page)
    i = 0
    while i < len(lines):
        fence = re.match(r"( *)```(\w*)", lines[i])
        if fence:
            end = next(j for j in range(i + 1, len(lines)) if lines[j].lstrip().startswith("```"))
            yield i + 2, fence[2], [line[len(fence[1]):] for line in lines[i + 1:end]]
            i = end + 1
        elif lines[i].startswith("    ") and (i == 0 or not lines[i - 1].strip()):
            end = i
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            yield i + 1, "indented", [line[4:] for line in lines[i:end]]
            i = end
        else:
            i += 1


# A line that people type begins with one of these, or with variables before them.
PROGRAMS = ("sprat", "mpirun", "mpiexec", "torchrun", "python", "python3", "pip", "deepspeed", "cmake", "ninja", "ctest", "apt-get",
            "export", "for", "echo", "torchfrtrace", "accelerate", "ray", "docker", "srun", "sbatch", "kubectl", "apt", "man", "cpack")
FOLDERS = ("./", ".ci/", "tests/", "bench/", "build/", "bin/", "examples/", "packages/", "docs/pictures/")


def is_command(text: str) -> bool:
    words = text.split()
    while words and re.match(r"[A-Z_]+=\S+$", words[0]):
        words = words[1:]
    return bool(words) and ((words[0] in PROGRAMS and (words[0] != "for" or "; do" in text)) or words[0].startswith(FOLDERS))


def without_comment(text: str) -> str:
    """As the shell has it: from a # behind a blank on, if it is in no quotes."""
    quote = ""
    for i, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (i == 0 or text[i - 1].isspace()):
            return text[:i].rstrip()
    return text.rstrip()


def unfinished(text: str) -> bool:
    """Whether the next line belongs to it: one that is continued, or a loop without its end."""
    return text.endswith("\\") or len(re.findall(r"\bdo\b", text)) > len(re.findall(r"\bdone\b", text))


def commands(page: str) -> list[Line]:
    """What people may type, of the page's blocks, in their order."""
    found = []
    for begin, language, block in blocks(page):
        if language in OTHER_LANGUAGES:
            continue
        # A session: what the machine answers has no prompt.
        session = any(line.startswith("$ ") for line in block)
        i = 0
        while i < len(block):
            number, text = begin + i, block[i]
            i += 1
            if session:
                if not text.startswith("$ "):
                    continue
                text = text[2:]
            if not is_command(text):
                continue
            while i < len(block) and unfinished(text):
                text = text[:-1] + " " + block[i] if text.endswith("\\") else text + "\n" + block[i]
                i += 1
            found.append(Line(page, number, "\n".join(without_comment(part) for part in text.split("\n"))))
    return found
