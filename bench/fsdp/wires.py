"""Gradients as blocks of bytes beside bf16 ones: a step between hosts, and the loss they lead to."""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import jobs
import shapes
import table
from sides import sides_of

COLUMNS = ["gradients as", "sent a step, MB", "formula, MB", "wire, ms", "step, ms", "bf16 / this"]
LOSS_COLUMNS = ["gradients as", "validation loss", "of f32's"]
# A frame of 1514 bytes, as the limit of a wire counts it, carries 1448 of a TCP stream.
GOODPUT = 1448 / 1514
# Whole copies on every host: between them gradients are all that travels.
DDP = {"strategy": "ddp", "reductions_in_flight": 2}
WAYS = [{"name": "bf16", **DDP, "gradient_wire": "bf16"},
        *({"name": wire, **DDP, "gradient_wire": wire} for wire in ("i8", "f8e4m3", "f8e5m2")),
        {"name": "i8-feedback", **DDP, "gradient_wire": "i8", "error_feedback": True},
        {"name": "nothing", **DDP, "nothing": True}]
BAR, WIRE_BY_COMPUTATION, LOSS_BAR = 1.7, 5.0, 0.01
BLOCK_BYTES = 260 / 256
EXAMPLE = jobs.REPOSITORY / "examples" / "gpt-jargon.json"


def bytes_an_element(wire: str) -> float:
    """Of one all-reduce, there and back: bf16 contributions have sums of f32, blocks have blocks."""
    return 2 + 4 if wire == "bf16" else 2 * BLOCK_BYTES


def measure(options: argparse.Namespace) -> tuple[list[dict], list[str]]:
    place = jobs.Between(options.hosts, 1, options.rate, options.pin)
    with sides_of(shapes.NARROW, place, options) as sides:
        job = sides.ours(WAYS)
        ways = {way["name"]: (job, way["name"]) for way in WAYS}
        sent = {name: _sent_a_step(job, name) for name in ways}
        seconds = jobs.alternate(ways, options.rounds, options.steps)
        job.end()
    cells = [_cell(name, options, sent[name], seconds) for name in ways if name != "nothing"]
    place.remove()
    computation = statistics.median(seconds["nothing"])
    by_computation = cells[0]["wire_s"] / computation
    print(f"\n{place.text()}; {shapes.NARROW.text()} a rank; without communication "
          f"{1e3 * computation:.3g} ms, of which bf16's wire is {by_computation:.1f} times\n\n"
          f"{table.lines(COLUMNS, list(map(_row, cells)))}", flush=True)
    missed = [f"{cell['way']}: {cell['ratio']['median']:.2f} of {BAR}" for cell in cells[1:]
              if cell["way"] == "i8" and cell["ratio"]["median"] < BAR]
    missed += [f"{cell['way']}: sent {cell['sent']}, by formula {cell['formula']:.0f}" for cell in cells
               if abs(cell["sent"] / cell["formula"] - 1) > 0.01]  # units are padded
    if by_computation < WIRE_BY_COMPUTATION:
        missed.append(f"bf16's wire needs {by_computation:.1f} x the computation, not "
                      f"{WIRE_BY_COMPUTATION:g}; a lower --rate makes it more")
    return cells, missed


def _sent_a_step(job: jobs.Job, way: str) -> float:
    """The mean of ranks, whose parts differ by a block."""
    before = [answer["sent"] for answer in job.steps(way, 1)]
    after = [answer["sent"] for answer in job.steps(way, 1)]
    return statistics.mean(later - sooner for later, sooner in zip(after, before))


def _cell(way: str, options: argparse.Namespace, sent: float, seconds: dict) -> dict:
    others = (options.hosts - 1) / options.hosts
    # The head shares its weights with the embedding, and has gradients of its own.
    gradients = shapes.NARROW.parameters() + shapes.VOCABULARY * shapes.NARROW.width
    formula = bytes_an_element(way) * gradients * others
    return {"way": way, "sent": sent, "formula": formula, "seconds": seconds[way],
            "wire_s": formula / (jobs.bits_of(options.rate) * GOODPUT / 8),
            "ratio": table.ratios(seconds["bf16"], seconds[way]), "bar": BAR}


def _row(cell: dict) -> list[str]:
    return [cell["way"], f"{cell['sent'] / 1e6:.2f}", f"{cell['formula'] / 1e6:.2f}",
            f"{1e3 * cell['wire_s']:.0f}", table.milliseconds(cell["seconds"]),
            table.digits(cell["ratio"], ".2f")]


def losses(options: argparse.Namespace) -> tuple[list[dict], list[str]]:
    """Of the same samples, from the same weights, on every wire."""
    cells = []
    for wire in ("f32", "i8", "i8-feedback", "f8e4m3"):
        loss = _trained(wire, options)
        cells.append({"way": wire, "loss": loss, "ratio": loss / (cells[0]["loss"] if cells else loss)})
        print(f"{wire}: {loss:.4f}", flush=True)
    rows = [[cell["way"], f"{cell['loss']:.4f}", f"{cell['ratio']:.4f}"] for cell in cells]
    print(f"\nexamples/gpt-jargon.json, {options.steps} steps on {options.ranks} ranks, each with a whole "
          f"copy\n\n{table.lines(LOSS_COLUMNS, rows)}", flush=True)
    return cells, [f"{cell['way']}: {cell['ratio']:.4f} of f32's, more than {LOSS_BAR:.0%} above"
                   for cell in cells if cell["way"] == "i8" and cell["ratio"] > 1 + LOSS_BAR]


def _trained(wire: str, options: argparse.Namespace) -> float:
    """The validation loss at the end."""
    lines = EXAMPLE.read_text().splitlines()
    config = json.loads("\n".join(line for line in lines if not line.lstrip().startswith("//")))
    config["train"]["precision"] = {"gradient_wire": wire.removesuffix("-feedback"),
                                    "error_feedback": wire.endswith("feedback")}
    config["train"] |= {"sample_bytes": 0, "steps": options.steps}
    config["train"]["warmup_steps"] = min(config["train"]["warmup_steps"], options.steps // 10)
    config["parallel"] = {"strategy": "ddp"}
    with tempfile.TemporaryDirectory() as folder:
        path, report = pathlib.Path(folder) / "config.json", pathlib.Path(folder) / "report"
        path.write_text(json.dumps(config))
        subprocess.run([str(pathlib.Path(options.bin) / "sprat"), "train", str(path), "--virtual-ranks",
                        str(options.ranks), "--report", str(report)], check=True, stdout=subprocess.DEVNULL)
        steps = [json.loads(line) for line in report.read_text().splitlines()]
    return [step["validation_loss"] for step in steps if step.get("validation_loss") is not None][-1]
