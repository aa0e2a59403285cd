"""What an inference engine must offer to run a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from .plan import LaunchPlan


@dataclass(frozen=True)
class Command:
    """A process to start: program first in ``argv``; ``env`` is added to the inherited one."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True)
class Kernels:
    """Which kernels of ours multiply by weights in RAM.

    Attributes:
        isa: their instruction set; ``None`` where upstream's run.
        why: in words.
    """

    isa: str | None
    why: str


@runtime_checkable
class Backend(Protocol):
    """An inference engine as a plugin. Stateless: every method returns data or a fact.

    An engine with our kernels has one method more: ``kernels(model_types, setting, isa) ->
    Kernels`` says which of them run for weights of these types with ``--kernels`` ``setting`` on a
    processor with these instruction sets. The planner then counts weights as those hold them.

    One that can place any set of layers on GPUs has ``layer_sets() -> bool``: whether the server
    that it will start can. Only then a plan has a ``layer_set``.
    """

    @property
    def name(self) -> str:
        """The name used in plans and on the command line."""

    def server(self) -> Path | None:
        """The server program, or ``None`` when it is not built or installed."""

    def missing(self) -> str:
        """The command a user types to get the server, for messages when there is none."""

    def command(self, plan: LaunchPlan) -> Command:
        """``argv`` (without host and port) and environment for the plan.

        Raises:
            UserError: there is no server program.
        """

    def ready_url(self, base_url: str) -> str:
        """The URL that answers 200 once the model is loaded."""

    def exactness(self, model_types: tuple[str, ...], plan: LaunchPlan) -> tuple[str, ...]:
        """What makes speculative greedy output equal to plain with this engine, in words; empty
        when the engine cannot promise it."""
