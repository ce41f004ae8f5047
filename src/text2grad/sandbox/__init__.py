"""Model-written code, run where it can do no harm and cannot cheat: programs and tests in, results out.

Enters: a program's source, tests as data sets publish them. Leaves: a `Report` with one result per test. Refuses to
know critics, completions and rewards. What it promises: docs/sandbox.md.
"""

from text2grad.sandbox.bubble import UnsafeWarning
from text2grad.sandbox.formats import Plan, Unit, UnusableTests, plan
from text2grad.sandbox.results import Limits, Report, TestResult
from text2grad.sandbox.run import Job, Sandbox

__all__ = [
    "Job",
    "Limits",
    "Plan",
    "Report",
    "Sandbox",
    "TestResult",
    "Unit",
    "UnsafeWarning",
    "UnusableTests",
    "plan",
]
