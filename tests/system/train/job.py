"""Runs `sprat train` for scripts that compare runs, and reads checkpoints bit by bit."""
import dataclasses
import json
import pathlib
import re
import subprocess

HOSTS = pathlib.Path(__file__).resolve().parents[1] / "hosts" / "run"
CANNOT = 77  # the status of what this machine does not allow
TIMEOUT_S = 600


@dataclasses.dataclass
class Outcome:
    """How a run ended."""
    status: int
    output: str
    errors: str
    lines: list  # of the report

    def bits(self):
        """Of losses and gradient norms, by step."""
        return [(line["loss_hex"], float(line["grad_norm"]).hex()) for line in self.lines]

    def said(self):
        return f"ended with {self.status}: {self.errors.strip()[-600:]}"


class Trainer:
    """Trains in a folder, where configurations have their relative paths. Ranks are `threads` of one process, processes of
    `mpirun`, or processes on two `hosts` that are network namespaces."""

    def __init__(self, sprat, folder, environment):
        self.sprat, self.folder, self.environment = str(pathlib.Path(sprat).resolve()), folder, environment

    def run(self, configuration, ranks, how="threads", arguments=()):
        path, report = self.folder / "config.json", self.folder / "report.jsonl"
        path.write_text(json.dumps(configuration))
        report.unlink(missing_ok=True)
        command = [self.sprat, "train", str(path), "--report", str(report), *map(str, arguments)]
        if how == "threads":
            command += ["--virtual-ranks", str(ranks)]
        elif how == "mpirun":
            command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), *command]
        else:
            command = [str(HOSTS), "2", str(ranks // 2), "--", *command]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S,
                              env=self.environment)
        lines = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
        return Outcome(done.returncode, done.stdout, done.stderr, lines)

    def trained(self, configuration, ranks, how="threads", arguments=()):
        """A run that must end well."""
        outcome = self.run(configuration, ranks, how, arguments)
        assert outcome.status == 0, outcome.said()
        return outcome


def kernel_of(outcome):
    """Of OpenBLAS: a probe on a busy machine may choose another, with other bits."""
    return re.search(r"matrix products by openblas/(\S+)", outcome.output)[1]


def stored_tensors(checkpoint):
    """The bytes of every tensor of a checkpoint, whole, by name; and its counters under "counters"."""
    folder = pathlib.Path(checkpoint)
    manifest = json.loads((folder / "manifest.json").read_text())
    files = [(folder / file["name"]).read_bytes() for file in manifest["files"]]
    tensors = {"counters": json.dumps(manifest["counters"], sort_keys=True)}
    for name, tensor in manifest["tensors"].items():
        whole = bytearray(4 * count(tensor["shape"]))
        for file, begin, offset, extent in tensor["boxes"]:
            place(whole, tensor["shape"], files[file][begin:], offset, extent)
        tensors[name] = bytes(whole)
    return tensors


def count(shape):
    product = 1
    for extent in shape:
        product *= extent
    return product


def place(whole, shape, values, offset, extent):
    """Puts a box of a vector or a matrix of f32 where it belongs."""
    row = 4 * count(shape[1:])
    if isinstance(offset, int):  # whole rows
        length = extent * row if shape else 4
        whole[offset * row:offset * row + length] = values[:length]
        return
    columns = 4 * count(extent[1:])
    first = 4 * sum(offset[1:])
    for at in range(extent[0]):
        begin = (offset[0] + at) * row + first
        whole[begin:begin + columns] = values[at * columns:(at + 1) * columns]
