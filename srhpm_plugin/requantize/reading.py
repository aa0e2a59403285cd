"""How long a weight takes to be read and multiplied by, per type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..calibrate.data import Calibration
from ..gguf.ggml_types import GGML_TYPES
from ..model import Tensor
from ..packing import EXPERTS, packed_bytes

WIDTHS = (1, 4)
"""Tokens per pass that count alike: plain decoding, and verifying three drafted tokens."""

_SIZES = {t.name: t for t in GGML_TYPES.values()}

# Where nothing was measured: bytes alone for one token; for four the ratios of docs/measurements.md
# ("A pass over M tokens": products of 0.3 GB of packed weights, two threads).
_TABLE = {"Q2_K": 1.44, "Q3_K": 1.26, "IQ2_S": 1.20}
_OTHERS = 1.10
_TABLE_NS = 1 / 30  # a byte: that machine reads 30 GB/s


@dataclass(frozen=True)
class Reading:
    """Costs of types.

    Attributes:
        ns: nanoseconds per byte by type and number of tokens; types without are not chosen.
        basis: where they come from, in words.
        measured: on this machine.
    """

    ns: Mapping[str, Mapping[int, float]]
    basis: str
    measured: bool

    def ms(self, tensor: Tensor, share: float = 1.0) -> dict[int, float]:
        """Milliseconds of one product with the tensor by number of tokens, in the form in which our
        kernels hold it. A type without a figure is taken to be as slow per byte as any."""
        ns = self.ns.get(tensor.type)
        nbytes = (packed_bytes(tensor) or tensor.nbytes) * share
        return {
            m: nbytes * (ns[m] if ns else max(other[m] for other in self.ns.values())) / 1e6
            for m in WIDTHS
        }


def reading(calibration: Calibration | None) -> Reading:
    """The costs of this machine if it was measured, else the table's."""
    if calibration is not None:
        found = {
            name: {m: table[m] for m in WIDTHS}
            for name, table in calibration.products["ours"].items()
        }
        return Reading(found, "srhpm-plugin calibrate on this machine", True)
    table = {name: {1: _TABLE_NS, 4: _TABLE_NS * _TABLE.get(name, _OTHERS)} for name in _SIZES}
    return Reading(table, "docs/measurements.md, another machine: ratios hold, times do not", False)


def as_type(tensor: Tensor, name: str) -> Tensor | None:
    """The tensor in another type; ``None`` where its rows are no whole blocks of it."""
    kind = _SIZES[name]
    if tensor.shape[0] % kind.block:
        return None
    return replace(tensor, type=name, nbytes=tensor.n_elements // kind.block * kind.nbytes)


def bits(name: str) -> float:
    """Bits per weight in a file."""
    return 8 * _SIZES[name].nbytes / _SIZES[name].block


def read_share(tensor: Tensor, used: int, experts: int) -> float:
    """The part of the tensor that one token reads."""
    return used / experts if experts and EXPERTS.search(tensor.name) else 1.0
