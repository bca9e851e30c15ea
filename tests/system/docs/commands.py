"""Runs the commands that README.md and docs say to type; those that not_run.txt names are held against --help and sources."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from functools import lru_cache
from pathlib import Path

from pages import ROOT, Line, commands, is_command, people_pages, prose, tables
from references import missing_script

REASONS = Path(__file__).with_name("not_run.txt")
# A command that hangs ends here. All together take less than a minute on two cores that do nothing else.
LIMIT_S = 120
# Never run, whatever the table says of them: they change the machine, or others.
OUTSIDERS = re.compile(r"\b(apt|apt-get|pip|docker|kubectl|srun|sbatch|cpack|quickstart)\b")
# What capital words stand for in the folder where commands run.
PLACES = {"CONFIG.json": "gpt.json", "FOLDER": "saved"}


def told() -> list[Line]:
    """Every command line of the pages, and of the tables of docs/mission.md, in their order. README.md comes first."""
    found = []
    for page in sorted(people_pages(), key=lambda page: (page != "README.md", page)):
        found += commands(page)
        if page == "docs/mission.md":
            for number, cells in tables(page):
                found += [Line(page, number, span) for cell in cells[1:] for span in re.findall(r"`([^`]+)`", cell)
                          if is_command(span) and not (cell is cells[-1] and span.startswith(("tests/", "bench/")))]
    return found


def in_prose() -> list[Line]:
    """Commands that stand within sentences: `sprat bench --tune four.rules`."""
    # What has changed is told by old names; "sprat flight record 1" is what a file is called within.
    return [Line(page, number, span) for page in people_pages() if page != "CHANGELOG.md" for number, line in prose(page)
            for span in re.findall(r"`([^`]+)`", line)
            if re.match(r"(sprat (?!flight)[a-z]|tests/\S+ -|bench/\S+ -)", span)]


def reasons() -> list[tuple[str, str]]:
    """Pattern and reason of each line of not_run.txt."""
    found = []
    for line in REASONS.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, _, reason = line.partition(" | ")
            found.append((pattern.strip(), reason.strip()))
    return found


def reason_of(line: Line, table: list[tuple[str, str]]) -> str:
    """Why the command is not run here; empty if it is."""
    return next((reason for pattern, reason in table if fnmatch.fnmatchcase(line.text, pattern)), "")


def parts(text: str) -> list[list[str]]:
    """Words of each simple command, variables before it left out."""
    found = []
    for part in re.split(r"&&|\|\||;|\||\n", re.sub(r"(do|then) ", "; ", text)):
        words = [word for word in re.findall(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+", part)]
        while words and re.match(r"[A-Z_]+=", words[0]):
            words = words[1:]
        if words:
            found.append(words)
    return found


class Programs:
    """What the programs of the build folder and the scripts of the repository take."""

    def __init__(self, build: Path) -> None:
        self.build = build
        self.sprat = build / "bin/sprat"

    @lru_cache(maxsize=None)
    def help_of(self, *names: str) -> str:
        """What `sprat NAMES --help` prints; empty where there is no such command."""
        asked = subprocess.run([self.sprat, *names, "--help"], capture_output=True, text=True, timeout=LIMIT_S)
        return asked.stdout if asked.returncode == 0 else ""

    @lru_cache(maxsize=None)
    def text_of(self, folder: Path) -> str:
        """All programs of a folder: where a script takes its options apart."""
        texts = [file.read_bytes() for file in folder.iterdir() if file.is_file() and file.suffix in ("", ".py", ".sh")]
        return b"\n".join(texts).decode(errors="replace")

    def wrong(self, words: list[str]) -> list[str]:
        """What a simple command says that its program does not take."""
        # What launchers start counts for itself.
        if words[0] == "mpirun":
            begin = next((i for i, word in enumerate(words) if word in ("sprat", "python")), len(words))
            return self.wrong(words[begin:]) if begin < len(words) else []
        if "--" in words:
            border = words.index("--")
            return self.wrong(words[:border]) + self.wrong(words[border + 1:])
        program = words[0]
        options = [word.split("=")[0] for word in words[1:] if re.match(r"--[a-z]", word) and word != "--help"]
        if program == "sprat":
            return self.wrong_of_sprat(words[1:])
        if program.startswith(("build/", "bin/")):
            return self.wrong_of_binary(program, options)
        if program in ("python", "python3") and len(words) > 1 and "/" in words[1]:
            program = words[1]
        if program.startswith(("tests/", "bench/", "examples/", ".ci/", "./quickstart", "packages/", "docs/pictures/")):
            why = missing_script(program)
            text = self.text_of((ROOT / program).parent) if not why else ""
            return [why] if why else [f"{program} has no {option}" for option in options if option not in text]
        if words[1:3] == ["-m", "sprat.torch.run"]:
            text = self.text_of(ROOT / "plugins/torch/sprat/torch")
            # What follows the script is the script's.
            own = [option for option in options if words.index(option) < len(words)] if "..." not in words else []
            return [f"sprat.torch.run has no {option}" for option in own if option not in text]
        return []

    def wrong_of_sprat(self, words: list[str]) -> list[str]:
        names, rest = [], list(words)
        while rest and re.fullmatch(r"[a-z]+", rest[0]) and self.help_of(*names, rest[0]) and rest[0] != "help":
            # Positionals look like commands: a command's own help names it.
            if names and not re.search(rf"^  {rest[0]}\b", self.help_of(*names), re.MULTILINE):
                break
            names.append(rest.pop(0))
        if not names:
            return [] if words[:1] in (["help"], [], ["COMMAND"]) else [f"there is no sprat {words[0]}"]
        text = self.help_of(*names)
        return [f"sprat {' '.join(names)} has no {option}"
                for option in (word.split("=")[0] for word in rest if re.match(r"--?[a-z]", word))
                if not re.search(rf"(^|[\s,]){re.escape(option)}\b", text, re.MULTILINE)]

    def wrong_of_binary(self, program: str, options: list[str]) -> list[str]:
        inside = re.sub(r"^build/(release|fuzz)/", "", program)
        if program.startswith("build/fuzz/"):
            return []  # the preset fuzz alone makes it
        file = self.build / inside
        if not file.is_file():
            return [f"the build has no {inside}"]
        content = file.read_bytes()
        return [f"{inside} knows no {option}" for option in options
                if option[2:].removeprefix("gtest_").encode() not in content]


def prepare(folder: Path, build: Path) -> dict[str, str]:
    """Makes what the pages take for granted, and gives the environment of a shell there."""
    for name in ("examples", "tests", "bench"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "docs" / "pictures").mkdir(parents=True)
    (folder / "build").mkdir()
    (folder / "build/release").symlink_to(build)
    (folder / "bin").symlink_to(build / "bin")
    text = "It is easier to say what one does than to do what one says. " * 400
    (folder / "text.txt").write_text(text)
    (folder / "config.json").write_text(json.dumps(
        {"n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}))
    model = {"layers": 2, "width": 32, "heads": 2, "context": 32}
    small = {"model": model, "data": {"files": ["text.txt"]}, "train": {"steps": 4, "batch": 8, "sample_bytes": 0}}
    (folder / "small.json").write_text(json.dumps(small))
    (folder / "gpt.json").write_text(json.dumps({**small, "checkpoint": {"folder": "saved", "every": 2}}))
    return {**os.environ, "PATH": f"{build / 'bin'}:{os.environ['PATH']}", "HOME": str(folder), "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1", "OPENBLAS_NUM_THREADS": "1",
            # The folder's name may be long, and Open MPI makes sockets below it.
            "TMPDIR": "/tmp"}


def run(line: Line, folder: Path, environment: dict[str, str]) -> str:
    """What went wrong, or nothing."""
    text = line.text
    for word, place in PLACES.items():
        text = re.sub(rf"\b{re.escape(word)}(?!\w)", place, text)
    try:
        # A model of bytes that has hardly learned writes what is no text.
        done = subprocess.run(["bash", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, errors="replace",
                              timeout=LIMIT_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return f"{line}: not over in {LIMIT_S} s"
    said = (done.stderr or done.stdout).strip().splitlines()[-3:]
    return "" if done.returncode == 0 else f"{line}: exit {done.returncode}: {' / '.join(said)}"


def check(build: Path, only: str, listing: bool) -> list[str]:
    programs, table = Programs(build), reasons()
    lines = [line for line in told() if only in line.text]
    wrong = [f"{line}: {why}" for line in lines + [one for one in in_prose() if only in one.text]
             for words in parts(line.text) for why in programs.wrong(words)]
    if not only:
        used = {next((pattern for pattern, _ in table if fnmatch.fnmatchcase(line.text, pattern)), "") for line in lines}
        wrong += [f"{REASONS.name}: no page has a command like {pattern}" for pattern, _ in table if pattern not in used]
    folder = Path(tempfile.mkdtemp(prefix="sprat-docs-"))
    seen: set[str] = set()
    try:
        environment = prepare(folder, build)
        for line in lines:
            reason = reason_of(line, table)
            if listing:
                print(f"{line}  -- {reason or 'is run'}")
            elif not reason and OUTSIDERS.search(line.text):
                wrong.append(f"{line}: changes what is outside of a folder: give {REASONS.name} the reason why it is not run")
            elif not reason and line.text not in seen:
                begin = time.monotonic()
                if failure := run(line, folder, environment):
                    wrong.append(failure)
                print(f"{time.monotonic() - begin:5.1f} s  {line}")
            seen.add(line.text)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(lines)} command lines, {sum(not reason_of(line, table) for line in lines)} of them run, {len(wrong)} wrong")
    return wrong
