"""Spectrum-based fault localisation: lines that failing tests run and passing tests do not.

Enters: for each test, the lines it ran and whether it passed. Leaves: the suspicious lines, or none. Ochiai's measure
(Abreu, Zoeteweij, van Gemund 2007): failing runs of a line over the geometric mean of all failing tests and all runs of
the line. Knows nothing of programs.
"""

from collections.abc import Collection, Sequence
from math import sqrt
from typing import NamedTuple


class Suspect(NamedTuple):
    line: int
    suspicion: float
    """Ochiai, in (0, 1]."""
    failing: int
    """Failing tests that run it."""
    passing: int
    """Passing tests that run it."""
    evidence: float = 0.0
    """What else speaks against it (`blame.py`)."""


def suspects(runs: Sequence[tuple[Collection[int], bool]]) -> list[Suspect]:
    """Every line that a failing test runs, the most suspicious first.

    >>> [(suspect.line, round(suspect.suspicion, 2)) for suspect in suspects([({1, 2}, False), ({1, 3}, True)])]
    [(2, 1.0), (1, 0.71)]
    """
    failed = sum(not passed for _, passed in runs)
    ranked = []
    for line in {line for lines, passed in runs if not passed for line in lines}:
        failing = sum(line in lines for lines, passed in runs if not passed)
        passing = sum(line in lines for lines, passed in runs if passed)
        ranked.append(Suspect(line, failing / sqrt(failed * (failing + passing)), failing, passing))
    return sorted(ranked, key=lambda suspect: (-suspect.suspicion, suspect.line))


def blamed(runs: Sequence[tuple[Collection[int], bool]], most: int) -> list[Suspect]:
    """The lines to point at: those that share the highest suspicion, if they are at most `most`, and if some line that
    ran is less suspicious. A tie over everything that ran says nothing, unless that is a single line.

    >>> blamed([({1, 2}, False), ({1, 3}, True)], most=3)
    [Suspect(line=2, suspicion=1.0, failing=1, passing=0, evidence=0.0)]
    >>> blamed([({1, 2}, False), ({1, 2}, False)], most=3)
    []
    """
    ranked = suspects(runs)
    top = [suspect for suspect in ranked if suspect.suspicion == ranked[0].suspicion]
    everything = {line for lines, _ in runs for line in lines}
    if len(top) > most or (len(top) == len(everything) and len(top) > 1):
        return []
    return top
