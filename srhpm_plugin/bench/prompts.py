"""Prompts of five kinds, other ones in every round, and prompts from a file.

A prompt that comes twice flatters a drafter that remembers (n-gram tables, prompt caches), so each
round asks about another topic.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError


@dataclass(frozen=True)
class Prompt:
    """A question; ``name`` is for tables."""

    name: str
    text: str


_KINDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "prose",
        "Tell a story of several paragraphs about {}.",
        (
            "a lighthouse keeper who finds a letter from the future",
            "two sisters who repair an old sailing boat",
            "a village whose well starts to sing at night",
            "a clockmaker who is afraid of being late",
            "a train that stops at a station missing from the map",
            "a gardener who grows a plant nobody has a name for",
            "a cartographer lost in a town she has drawn herself",
            "the last day of a small cinema",
        ),
    ),
    (
        "code",
        "Write a Python module with {}. Give every function a docstring and add unit tests.",
        (
            "a class for a priority queue on a binary heap",
            "functions that read and write Roman numerals",
            "a parser for arithmetic expressions with brackets",
            "a least-recently-used cache and its statistics",
            "a text-wrapping function that keeps paragraphs apart",
            "a class for fractions with the four operations",
            "a breadth-first search through a maze of characters",
            "a tokenizer for a small subset of JSON",
        ),
    ),
    (
        "json",
        "Answer with a JSON array only. Describe ten invented {} as objects with the fields "
        '"id", "name", "description", "price" and "tags".',
        (
            "garden tools",
            "board games",
            "hiking boots",
            "kitchen machines",
            "musical instruments",
            "desk lamps",
            "bicycles",
            "sorts of cheese",
        ),
    ),
    (
        "list",
        "List fifteen steps, numbered and with a sentence of explanation each, for {}.",
        (
            "moving house without losing anything",
            "planting an orchard",
            "building a wooden bookcase",
            "preparing a week of hiking in the mountains",
            "learning to bake bread with sourdough",
            "restoring an old bicycle",
            "organizing a street festival",
            "setting up a home weather station",
        ),
    ),
    (
        "german",
        "Erkläre ausführlich und auf Deutsch, {}.",
        (
            "wie ein Gewitter entsteht",
            "warum der Mond nicht auf die Erde fällt",
            "wie aus Milch Käse wird",
            "wie eine Orgel ihre Töne erzeugt",
            "warum Brücken Dehnungsfugen haben",
            "wie Bienen sich über Futterplätze verständigen",
            "wie ein Segelboot gegen den Wind kommt",
            "warum Blätter im Herbst rot werden",
        ),
    ),
)


def round_prompts(number: int) -> list[Prompt]:
    """The five prompts of round ``number``, from 0; no two rounds share one."""
    prompts = []
    for kind, sentence, topics in _KINDS:
        text = sentence.format(topics[number % len(topics)])
        again = number // len(topics)
        if again:
            text = f"Version {again + 1}: {text}"
        prompts.append(Prompt(kind, text))
    return prompts


def load_prompts(path: Path) -> list[Prompt]:
    """Prompts from a file: a JSON array of strings, or else one prompt per line.

    Raises:
        UserError: no such file, or no prompt in it.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(
            f"cannot read the prompts {path}", error.strerror or str(error), "check the path"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"cannot read the prompts {path}", "it is not UTF-8 text", "give one prompt per line"
        ) from error
    texts: list[str]
    try:
        data = json.loads(text)
    except ValueError as error:
        if text.lstrip().startswith("["):
            raise UserError(
                f"cannot read the prompts {path}",
                f"it begins like a JSON array and is none ({error})",
                "mend it, or write one prompt per line",
            ) from None
        data = None
    if isinstance(data, list):
        if not all(isinstance(item, str) for item in data):
            raise UserError(
                f"cannot read the prompts {path}",
                "the JSON array holds something other than strings",
                "write a JSON array of strings, or one prompt per line",
            )
        texts = data
    else:
        texts = text.splitlines()
    texts = [item.strip() for item in texts if item.strip()]
    if not texts:
        raise UserError(
            f"cannot read the prompts {path}", "it holds none", "write one prompt per line"
        )
    return [Prompt(f"prompt {number}", item) for number, item in enumerate(texts, 1)]
