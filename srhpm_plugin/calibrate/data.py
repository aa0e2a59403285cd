"""What ``calibrate`` found out about a machine: plain data.

Two engines are measured everywhere: ``ours`` (our kernels, exact passes) and ``stock`` (upstream's
code paths in the same build). Tables by M, the tokens in a pass, are over :data:`WIDTHS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

EngineName = Literal["ours", "stock"]
ENGINES: tuple[EngineName, ...] = ("ours", "stock")

WIDTHS = (1, 2, 4, 8)
"""Tokens per pass that are measured; what lies between is interpolated."""

GPU_WIDTHS = (1, 4, 512)
"""The same of GPUs: a token, a verified draft, a part of a prompt."""

VERSION = 1

Table = Mapping[int, float]
"""A figure by M."""


@dataclass(frozen=True)
class Read:
    """How fast memory is read.

    Attributes:
        threads: so many at once.
        pages: ``huge``, ``small``, or ``system`` where no wish can be said.
        gb_s: 10^9 bytes per second, median.
    """

    threads: int
    pages: str
    gb_s: float


@dataclass(frozen=True)
class Attention:
    """Cost of attention over an f16 cache, nanoseconds of the whole team of threads.

    Attributes:
        query: per query head, token of the pass, position of the cache and element of a head.
        cell: per key/value head, position and element, once a pass however many tokens are in it.
    """

    query: float
    cell: float


@dataclass(frozen=True)
class Passes:
    """What a pass costs beside weights and attention, milliseconds by M.

    Attributes:
        fixed: of any pass.
        layer: of each layer: its small operations, and the waiting of threads for one another.
        build: of each layer when the graph is built anew, as after a pass of another width.
    """

    fixed: Table
    layer: Table
    build: float


@dataclass(frozen=True)
class Serving:
    """What the server adds to passes, milliseconds.

    Attributes:
        step: per answer to a pass: the loop, the task, the text.
        sample: per position that a token is taken from, for each 1000 entries of the vocabulary.
        draft: per drafted token, for each 1000 entries.
    """

    step: float
    sample: float
    draft: float


@dataclass(frozen=True)
class GpuSpeed:
    """What was measured of a GPU.

    Attributes:
        description, total: as its driver calls it, and bytes of its memory: another one under the
            same name is another GPU.
        launch_ms: a graph with one tiny operation, until its end is known.
        crossing_ms: a change between CPU and GPU in a scheduled graph, with next to nothing to
            copy. ``None``, as below: not measured.
        up_bytes_s, down_bytes_s: from common RAM, and to it.
        products: by weight type, nanoseconds per byte of weights by M, over :data:`GPU_WIDTHS`.
        gflop_s: 10^9 operations per second at the largest M, a multiplication and an addition
            being two.
        left_out: what could not be measured, in words.
    """

    description: str
    total: int
    launch_ms: float
    crossing_ms: float | None = None
    up_bytes_s: float | None = None
    down_bytes_s: float | None = None
    products: Mapping[str, Table] = field(default_factory=dict)
    gflop_s: Mapping[str, float] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> GpuSpeed:
        """The opposite of :meth:`to_json`.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is none of ours.
        """
        return GpuSpeed(
            description=str(data["description"]),
            total=int(data["total"]),
            launch_ms=_finite(data["launch_ms"]),
            crossing_ms=_perhaps(data["crossing_ms"]),
            up_bytes_s=_perhaps(data["up_bytes_s"]),
            down_bytes_s=_perhaps(data["down_bytes_s"]),
            products={str(n): _table(t, GPU_WIDTHS) for n, t in data["products"].items()},
            gflop_s={str(name): _finite(value) for name, value in data["gflop_s"].items()},
            left_out=tuple(map(str, data["left_out"])),
        )


@dataclass(frozen=True)
class Calibration:
    """All that was measured.

    Attributes:
        about: what it holds for: machine, build, kernel settings (see :mod:`.store`).
        taken: seconds since 1970.
        seconds: how long it took.
        load: processes that wanted to run besides, at the start; ``None`` where unknown.
        threads: of all figures but ``reads``.
        reads: of memory.
        products: per engine and weight type, nanoseconds per byte of weights by M: bytes as our
            kernels hold them for ``ours``, as in the file for ``stock``.
        attention, passes: per engine.
        serving: of our server; upstream's loop is taken to cost the same.
        gpus: by the server's name for them; ``None``: none was measured.
        left_out: what could not be measured, in words.
    """

    about: Mapping[str, Any]
    taken: float
    seconds: float
    load: float | None
    threads: int
    reads: tuple[Read, ...]
    products: Mapping[EngineName, Mapping[str, Table]]
    attention: Mapping[EngineName, Attention]
    passes: Mapping[EngineName, Passes]
    serving: Serving
    gpus: Mapping[str, GpuSpeed] | None = None
    left_out: tuple[str, ...] = ()
    version: int = field(default=VERSION)

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries; numbers of tokens become words, as JSON has it."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Calibration:
        """The opposite of :meth:`to_json`.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is none of ours.
        """
        if data["version"] != VERSION:
            raise ValueError("of another version")
        return Calibration(
            about=dict(data["about"]),
            taken=_finite(data["taken"]),
            seconds=_finite(data["seconds"]),
            load=None if data["load"] is None else _finite(data["load"]),
            threads=int(data["threads"]),
            reads=tuple(
                Read(int(r["threads"]), str(r["pages"]), _finite(r["gb_s"])) for r in data["reads"]
            ),
            products=_by_engine(
                data["products"], lambda types: {str(name): _table(t) for name, t in types.items()}
            ),
            attention=_by_engine(
                data["attention"], lambda a: Attention(_finite(a["query"]), _finite(a["cell"]))
            ),
            passes=_by_engine(
                data["passes"],
                lambda p: Passes(_table(p["fixed"]), _table(p["layer"]), _finite(p["build"])),
            ),
            serving=Serving(*(_finite(data["serving"][n]) for n in ("step", "sample", "draft"))),
            gpus=_gpus(data.get("gpus")),
            left_out=tuple(map(str, data["left_out"])),
        )


def _gpus(data: Mapping[str, Any] | None) -> dict[str, GpuSpeed] | None:
    if data is None:
        return None
    return {str(name): GpuSpeed.from_json(speed) for name, speed in data.items()}


def _finite(value: Any) -> float:
    number = float(value)
    if not 0 <= number < float("inf"):
        raise ValueError(f"{value!r} is no measured figure")
    return number


def _perhaps(value: Any) -> float | None:
    return None if value is None else _finite(value)


def _table(data: Mapping[str, Any], widths: tuple[int, ...] = WIDTHS) -> dict[int, float]:
    table = {int(m): _finite(value) for m, value in data.items()}
    if sorted(table) != list(widths):
        raise ValueError("not all widths were measured")
    return table


def _by_engine(data: Mapping[str, Any], read: Callable[[Any], Any]) -> dict[EngineName, Any]:
    return {name: read(data[name]) for name in ENGINES}
