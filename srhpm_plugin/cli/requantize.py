"""``srhpm-plugin requantize``."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UserError
from ._bar import Bar

if TYPE_CHECKING:
    from rich.console import Console

    from ..model import ModelInfo
    from ..requantize.mix import Mix
    from ..requantize.quality import Divergence
    from ..requantize.reading import Reading

_LIKE = "Q4_K"
# Whole precision or nearly so: from these nothing adds up.
_WHOLE = ("F32", "F16", "BF16")


@click.command(name="requantize")
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "--for-cpu",
    is_flag=True,
    help="Choose what our kernels read fastest from RAM; without it, what makes the file smallest.",
)
@click.option(
    "--like",
    metavar="TYPE",
    default=_LIKE,
    show_default=True,
    help="Lose no more quality, by estimate, than with every weight in this type.",
)
@click.option(
    "--imatrix",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An importance matrix of llama-imatrix.",
)
@click.option(
    "--original",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The model that IN was quantized from, to measure IN and OUT against; IN itself if not "
    "given.",
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads at work.")
@click.option("--no-measure", is_flag=True, help="Do not measure the quality.")
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    *,
    source: str,
    target: Path,
    for_cpu: bool,
    like: str,
    imatrix: Path | None,
    original: Path | None,
    threads: int | None,
    no_measure: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Writes another quantization of the model IN to the new file OUT.

    Each weight gets a type of its own: the mix that is read fastest, or is smallest, among those
    that are estimated to lose no more quality than --like. Afterwards the loss is measured: the
    divergence of the predictions from those of IN, over a short text. OUT is never overwritten.
    """
    from ..calibrate.store import current
    from ..machine.probe import probe
    from ..planner.headers import read_header
    from ..planner.names import find_model
    from ..requantize.errors import ERRORS
    from ..requantize.mix import choose
    from ..requantize.reading import reading
    from ..requantize.run import exists

    like = like.upper()
    if like not in ERRORS:
        raise UserError(
            f"cannot use --like {like}",
            "its loss of quality was not measured",
            f"give one of: {', '.join(ERRORS)}",
        )
    path = find_model(source)
    if target.exists():
        raise exists(target)
    model = read_header(path)
    machine = probe(None)
    costs = reading(current(machine))
    mix = choose(model, like, reading=costs if for_cpu else None)
    report = _report(model, mix, costs, like, for_cpu)
    if not mix.changed:
        why = f"no mix of types is {'faster' if for_cpu else 'smaller'} and as good as {like}"
        raise UserError(f"nothing to do for {path}", why, "give another --like, e.g. --like Q3_K")
    team = threads or max(1, machine.cpu.usable_performance)
    held = max(model.nbytes, original.stat().st_size if original else 0)
    if not no_measure and held > machine.memory.free:
        click.echo("warning: the quality is not measured: the source exceeds the RAM", err=True)
        no_measure = True
    if not dry_run:
        report["divergence"] = _write(
            path, target, model, mix, team, imatrix, original or path, no_measure
        )
        report["written"] = str(target)
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    from ..planner.printing import console

    _show(report, mix, console())


def _write(
    path: Path,
    target: Path,
    model: ModelInfo,
    mix: Mix,
    threads: int,
    imatrix: Path | None,
    original: Path,
    no_measure: bool,
) -> dict[str, Any] | None:
    from ..native.locate import find_program
    from ..requantize.quality import Comparison
    from ..requantize.run import write

    programs = [find_program(name) for name in ("llama-quantize", "llama-perplexity")]
    quantizer, judge = programs
    if quantizer is None or (judge is None and not no_measure):
        raise UserError(
            "cannot requantize", "the programs are not built", "type: srhpm-plugin native build"
        )
    _require_room(target, sum(t.nbytes for t in mix.after))
    with Bar() as bar, tempfile.TemporaryDirectory(prefix="srhpm-") as folder:
        write(
            quantizer,
            path,
            target,
            mix,
            threads=threads,
            imatrix=imatrix,
            on_progress=lambda done, total: bar.show("writing", done, total),
        )
        if no_measure or judge is None:
            return None
        comparison = Comparison(judge, Path(folder), threads)

        def step(words: str) -> Any:
            bar.show(words)
            return lambda piece: bar.show(f"{words}, piece {piece}")

        comparison.take(original, step("measuring: the source"))
        before = None if original == path else comparison.of(path, step("measuring: before"))
        after = comparison.of(target, step("measuring: after"))
    return {
        "against": str(original),
        "before": _numbers(before),
        "after": _numbers(after),
    }


def _numbers(found: Divergence | None) -> dict[str, float] | None:
    if found is None:
        return None
    return {"mean": found.mean, "error": found.error, "same_top": found.same_top}


def _require_room(target: Path, need: int) -> None:
    folder = target.absolute().parent
    if not folder.is_dir():
        raise UserError(f"cannot write {target}", f"there is no folder {folder}", "make it first")
    free = shutil.disk_usage(folder).free
    if free < need:
        raise UserError(
            f"cannot write {target}",
            f"{need / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free",
            "free some, or give OUT on another disk",
        )


def _report(model: ModelInfo, mix: Mix, costs: Reading, like: str, for_cpu: bool) -> dict[str, Any]:
    from ..requantize.mix import pass_ms

    before, after = (pass_ms(tensors, model, costs) for tensors in (mix.before, mix.after))
    return {
        "source": str(model.path),
        "for_cpu": for_cpu,
        "like": like,
        "bytes": {
            "before": sum(t.nbytes for t in mix.before),
            "after": sum(t.nbytes for t in mix.after),
        },
        "loss_to_like": mix.loss / mix.allowed if mix.allowed else None,
        "products_ms": {
            str(m): {
                "before": before[m] if costs.measured else None,
                "after": after[m] if costs.measured else None,
                "ratio": after[m] / before[m],
            }
            for m in before
        },
        "basis": costs.basis,
        "requantized": sorted({t.type for t in mix.before if len(t.shape) > 1}.difference(_WHOLE)),
        "types": _types(mix),
        "written": None,
        "divergence": None,
    }


def _types(mix: Mix) -> list[dict[str, Any]]:
    """By kind of tensor: from which types to which, and how many."""
    rows: dict[tuple[str, str, str], list[int]] = {}
    for old, new in zip(mix.before, mix.after, strict=True):
        if len(old.shape) > 1:
            parts = old.name.removesuffix(".weight").split(".")
            name = ".".join(parts[2:] if parts[0] == "blk" else parts)
            row = rows.setdefault((name, old.type, new.type), [0, 0])
            row[0] += 1
            row[1] += new.nbytes
    return [
        {"tensor": name, "from": old, "to": new, "count": count, "bytes": nbytes}
        for (name, old, new), (count, nbytes) in rows.items()
    ]


def _show(report: dict[str, Any], mix: Mix, out: Console) -> None:
    from rich.table import Table

    from ..planner.printing import emit, plain
    from ..planner.units import size

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("tensors", "", "from", "to", "size"):
        table.add_column(title, justify="right" if title in ("", "size") else "left")
    for row in report["types"]:
        same = row["from"] == row["to"]
        table.add_row(
            *map(
                plain,
                (row["tensor"], row["count"], row["from"], "as it is" if same else row["to"]),
            ),
            size(row["bytes"]),
        )
    emit(out, table)
    out.print()
    lines = [f"size: {size(report['bytes']['before'])} -> {size(report['bytes']['after'])}"]
    for m, ms in report["products_ms"].items():
        times = f"{ms['before']:.1f} -> {ms['after']:.1f} ms, " if ms["before"] else ""
        tokens = "1 token" if m == "1" else f"{m} tokens"
        lines.append(f"weights of a pass over {tokens}: {times}{ms['ratio']:.2f} of now")
    lines.append(f"  ({report['basis']})")
    if report["loss_to_like"] is not None:
        share = f"{report['loss_to_like']:.2f}"
        lines.append(f"loss of quality, estimated: {share} of that with all in {report['like']}")
    if report["requantized"]:
        kinds = ", ".join(report["requantized"])
        lines.append(f"  IN is quantized already ({kinds}): its own losses come on top")
    lines += _measured(report["divergence"])
    lines.append(f"written: {report['written']}" if report["written"] else "nothing was written")
    for line in lines:
        out.print(plain(line), soft_wrap=True)


def _measured(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return ["loss of quality: not measured"]
    lines = [f"divergence from {found['against']}, measured over about 900 tokens:"]
    for name in ("before", "after"):
        numbers = found[name]
        if numbers is not None:
            lines.append(
                f"  {name}: {numbers['mean']:.4f} +- {numbers['error']:.4f} nats per token, "
                f"the same token first at {numbers['same_top']:.1%}"
            )
    return lines
