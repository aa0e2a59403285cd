"""What the numbers of a comparison say, in sentences that claim no more than they do."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from ..bench.decode import DecodeRun

# Below this a difference is as likely the machine's mood.
_NOTABLE = 1.03
# Pairs this far apart on both sides of 1 contradict each other.
_CLEAR = 1.1
_POOR_ACCEPTANCE = 0.5


def verdict(runs: Sequence[DecodeRun]) -> list[str]:
    """Sentences on speed and on equality.

    Args:
        runs: the first is stock plain, the base of all ratios; the last is the plan.
    """
    ours = runs[-1]
    sentences = [_speed(ours)]
    for other in runs[1:-1]:
        sentences.append(_against(ours, other))
    sentences += [_equality(run) for run in runs if run.outputs]
    return sentences


def _speed(run: DecodeRun) -> str:
    ratio, low, high = median(run.ratios), min(run.ratios), max(run.ratios)
    spread = f"{low:.2f} to {high:.2f} over {_pairs(len(run.ratios))}"
    if low > 1 and ratio >= _NOTABLE:
        return f"SR-HPM is {ratio:.2f}x stock plain ({spread})."
    if ratio >= _NOTABLE:
        return (
            f"SR-HPM is {ratio:.2f}x stock plain in the median, but not in every pair ({spread}): "
            "the gain depends on the text, or the machine is busy."
        )
    if low < 1 / _CLEAR and high > _CLEAR:
        return (
            f"No difference to stock plain can be told, {ratio:.2f}x in the median ({spread}): the "
            "pairs disagree. If the machine is busy, try again when it is not."
        )
    why = "speculation is off"
    if run.acceptance is not None:
        kept = f"{run.acceptance:.0%} of the drafted tokens were kept"
        if run.acceptance < _POOR_ACCEPTANCE:
            why = f"only {kept}"
        else:
            why = f"{kept}, which does not pay for drafting and for wider passes on this machine"
    return f"No gain here, {ratio:.2f}x stock plain ({spread}): {why}."


def _against(ours: DecodeRun, other: DecodeRun) -> str:
    ratio = median(a / b for a, b in zip(ours.ratios, other.ratios, strict=True) if b)
    word = "faster than" if ratio >= _NOTABLE else "slower than"
    if 1 / _NOTABLE < ratio < _NOTABLE:
        return f"Against {other.engine} there is no notable difference ({ratio:.2f}x)."
    return f"It is {word} {other.engine} ({ratio:.2f}x)."


def _equality(run: DecodeRun) -> str:
    if run.equal_outputs == run.outputs:
        return f"{run.engine}: all {run.outputs} outputs have the tokens of its plain run."
    changed = run.outputs - run.equal_outputs
    return f"{run.engine}: {changed} of {run.outputs} outputs differ from its plain run."


def _pairs(n: int) -> str:
    return "1 pair" if n == 1 else f"{n} pairs"
