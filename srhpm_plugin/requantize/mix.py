"""Which type each tensor gets: the fastest to read at a stated cost in quality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..model import ModelInfo, Tensor
from ..packing import PACKED
from .errors import ERRORS, SENSITIVITY, kind_of
from .reading import WIDTHS, Reading, as_type, bits, read_share

# What holds a type in RAM without being read for each token costs this part of reading it.
_HELD = 0.01
_STEPS = 80
# Losses add up in proportion to errors as long as these are alike: with 5, mixes of MXFP4, Q3_K and
# better types lost twice what was estimated.
_WORST = 1.5

_TABLE, _HEAD = "token_embd.weight", "output.weight"


@dataclass(frozen=True)
class Option:
    """One type for one tensor.

    Attributes:
        tensor: as it would be.
        cost: what is to be small: milliseconds of reading it, or its bytes.
        loss: its part of the estimated divergence.
    """

    tensor: Tensor
    cost: float
    loss: float


@dataclass(frozen=True)
class Mix:
    """A choice for the whole model.

    Attributes:
        before, after: the tensors, in the same order.
        loss: estimated divergence from the source.
        allowed: that of the reference, all tensors in one type.
    """

    before: tuple[Tensor, ...]
    after: tuple[Tensor, ...]
    loss: float
    allowed: float

    @property
    def changed(self) -> int:
        """Tensors that get another type."""
        return sum(a.type != b.type for a, b in zip(self.before, self.after, strict=True))


def choose(model: ModelInfo, like: str, *, reading: Reading | None) -> Mix:
    """The mix that costs least and is estimated to diverge from the source no more than the source
    with everything in type ``like``.

    A Lagrange multiplier weighs loss against cost: for each value of it every tensor has its best
    type, and the smallest value that keeps to the limit is searched. What the limit leaves is then
    spent on single tensors.

    Args:
        like: a key of :data:`~.errors.ERRORS`.
        reading: what reading costs, for a model in RAM; ``None``: small files instead.
    """
    weights = _weights(model)
    types = [n for n in ERRORS if n in PACKED and ERRORS[n] <= _WORST * ERRORS[like]]
    if reading is not None:
        types = [n for n in types if n in reading.ns]
    options = [_options(t, model, types, weights.get(t.name), reading) for t in model.tensors]
    allowed = sum(
        _loss(weights[t.name], like)
        for t in model.tensors
        if t.name in weights and bits(t.type) > bits(like)
    )
    picked = _within(options, allowed)
    spent = sum(option.loss for option in picked)
    for at, option in _cheaper(picked, options):
        more = option.loss - picked[at].loss
        if option.cost < picked[at].cost and spent + more <= allowed:
            picked[at] = option
            spent += more
    after = tuple(option.tensor for option in picked)
    return Mix(model.tensors, after, spent, allowed)


def _cheaper(
    picked: Sequence[Option], options: Sequence[Sequence[Option]]
) -> list[tuple[int, Option]]:
    """What is cheaper than the choice, that which loses least for its saving first."""
    found = [
        ((option.loss - now.loss) / (now.cost - option.cost), at, number)
        for at, now in enumerate(picked)
        for number, option in enumerate(options[at])
        if option.cost < now.cost
    ]
    return [(at, options[at][number]) for _, at, number in sorted(found)]


def _within(options: Sequence[Sequence[Option]], allowed: float) -> list[Option]:
    def best(weight: float) -> list[Option]:
        return [min(found, key=lambda o: (o.cost + weight * o.loss, o.loss)) for found in options]

    low, high = -30.0, 30.0  # powers of ten: costs and losses have units of their own
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if sum(o.loss for o in best(10.0**middle)) <= allowed:
            high = middle
        else:
            low = middle
    return best(10.0**high)


def _weights(model: ModelInfo) -> dict[str, float]:
    """Each tensor's part of the sensitivity of its kind; those that stay as they are have none."""
    kinds: dict[str, list[Tensor]] = {}
    tied = all(t.name != _HEAD for t in model.tensors)
    for t in model.tensors:
        kind = kind_of(t.name)
        if kind is None or len(t.shape) < 2 or t.type not in ERRORS:
            continue
        if kind == "token_embd" and tied:
            kind = "output"
        kinds.setdefault(kind, []).append(t)
    found = {}
    for kind, tensors in kinds.items():
        total = sum(t.n_elements for t in tensors)
        for t in tensors:
            found[t.name] = SENSITIVITY[kind] * t.n_elements / total
    return found


def _options(
    tensor: Tensor,
    model: ModelInfo,
    types: Sequence[str],
    weight: float | None,
    reading: Reading | None,
) -> list[Option]:
    """As it is, and in those of the types that have fewer bits."""
    share = read_share(tensor, model.n_expert_used, model.n_expert)
    tied = all(t.name != _HEAD for t in model.tensors)
    read = tensor.name != _TABLE or tied
    own = _cost(tensor, reading, share, read)
    found = [Option(tensor, own, 0.0)]
    if weight is None:
        return found
    for name in types:
        other = as_type(tensor, name)
        if other is None or bits(name) >= bits(tensor.type):
            continue
        found.append(Option(other, _cost(other, reading, share, read), _loss(weight, name)))
    return found


def _cost(tensor: Tensor, reading: Reading | None, share: float, read: bool) -> float:
    if reading is None:
        return float(tensor.nbytes)
    each = sum(reading.ms(tensor, share).values()) / len(WIDTHS)
    # What is not read for each token takes room all the same.
    return each * ((1.0 if read else 0.0) + _HELD)


def _loss(weight: float, name: str) -> float:
    return weight * ERRORS[name]


def pass_ms(tensors: Sequence[Tensor], model: ModelInfo, reading: Reading) -> Mapping[int, float]:
    """Milliseconds of the products of a pass by number of tokens; the token table counts where it
    is the head."""
    tied = all(t.name != _HEAD for t in tensors)
    total = dict.fromkeys(WIDTHS, 0.0)
    for t in tensors:
        ms = reading.ms(t, read_share(t, model.n_expert_used, model.n_expert))
        if t.name != _TABLE or tied:
            for m in WIDTHS:
                total[m] += ms[m]
    return total
