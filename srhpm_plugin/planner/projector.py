"""Memory of a projector (mmproj): its weights and the space in which the image encoder works.

The server reserves that space for one picture when it starts. For encoders that scale every picture
to one size it was read off the server's log for many shapes and follows from the header
(tests/planner/test_projector.py repeats it). Others take pictures of any size and reserve for a
small one; what a large one needs is estimated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..errors import UserError
from ..gguf import Header, read_header
from .units import MIB

_F32 = 4

# Of encoders for pictures of any size, or of none that is stated: those of 0.4 to 0.9 GB took about
# a quarter of their size.
_SHARE = 4
_LEAST = 128 * MIB

# Kinds (clip.projector_type) that scale a picture, or each of its tiles, to clip.vision.image_size.
_LLAVA = "mlp"
_ONE_SIZE = (_LLAVA, "gemma3", "idefics3")

# No encoder is near these; a file that states more is not believed.
_MOST = {
    "image_size": 8192,
    "patch_size": 256,
    "embedding_length": 1 << 16,
    "feed_forward_length": 1 << 20,
}


@dataclass(frozen=True)
class Projector:
    """Bytes of a projector.

    Attributes:
        weights: of the file, which is but for its header all weights.
        compute: where it runs.
        handed: in RAM where it runs on a GPU: the picture.
        known: ``compute`` follows from the header; else it is estimated.
    """

    weights: int
    compute: int
    handed: int = 0
    known: bool = False


def projector_of(path: Path) -> Projector:
    """What ``path`` needs. A file that cannot be read as a projector is estimated by its size: the
    server will say what is wrong with it.

    Raises:
        OSError: there is no such file.
    """
    stat = path.stat()
    return _projector(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=64)
def _projector(path: Path, nbytes: int, _changed: int) -> Projector:
    estimate = Projector(nbytes, max(nbytes // _SHARE, _LEAST))
    try:
        header = read_header(path)
    except UserError:
        return estimate
    fields = header.kv
    kind = fields.get("clip.projector_type", fields.get("clip.vision.projector_type"))
    numbers = {name: _number(fields.get(f"clip.vision.{name}"), _MOST[name]) for name in _MOST}
    if kind not in _ONE_SIZE or fields.get("clip.has_audio_encoder") or not all(numbers.values()):
        return estimate
    image = 3 * numbers["image_size"] ** 2 * _F32
    return Projector(nbytes, _compute(header, str(kind), numbers, image), image, known=True)


def _compute(header: Header, kind: str, numbers: dict[str, int], image: int) -> int:
    """At the widest of a layer, five rows per patch for attention (residual, its norm, Q, K, V) or
    three and the inner one of the feed-forward."""
    width = numbers["embedding_length"]
    tensors = {t.name: t for t in header.tensors}
    joined = "v.class_embd" in tensors
    patches = (numbers["image_size"] // numbers["patch_size"]) ** 2 + joined
    row = patches * width * _F32
    total = max(5 * row, 3 * row + patches * numbers["feed_forward_length"] * _F32)
    if kind == _LLAVA:
        # A row more where a class is joined to the patches. Where the picture was, whole rows find
        # room; the rest is left over.
        total += joined * row + (image % row if patches else 0)
    projection = tensors.get("mm.input_projection.weight")
    # Gemma's is turned first of all.
    return total + (projection.nbytes if projection is not None else 0)


def _number(value: object, most: int) -> int:
    """A stated size; 0 where it is none."""
    return value if isinstance(value, int) and 0 < value <= most else 0
