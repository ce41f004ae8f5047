"""What an output file has cost so far, in all runs, beside it: `OUT.jsonl.spent`.

Enters: OUT and the limits. Leaves: a `Tally` that begins where the runs before it ended, however they ended. Each
request is written down before it is sent, and its cost when it is known. A line is with the system when the call
returns, so it survives `kill -9` (not a power cut: syncing to the disk twice a request would cost more than it saves).
When OUT is finished, the sum goes into its receipt, and this file goes.
"""

from itertools import chain
from pathlib import Path
from typing import Any

from text2grad.errors import InvalidData, RunError
from text2grad.feedback.critics.budget import BudgetSettings, Tally
from text2grad.runs import Closable, Jsonl, encode_row, read_jsonl, write_atomic

_HEADER = {"text2grad": "spent"}


class Spent(Closable):
    def __init__(self, target: Path, limits: BudgetSettings) -> None:
        self.path = target.with_name(f"{target.name}.spent")
        self.tally = Tally(limits, self._note)
        self._rows: Jsonl | None = None
        if self.path.exists():
            self._restore()
            write_atomic(self.path, chain([encode_row(_HEADER), encode_row(self.tally.total())]))

    def forget(self) -> None:
        """OUT is finished, and its receipt says what it cost."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()
            self._rows = None

    def _restore(self) -> None:
        rows = read_jsonl(self.path)
        try:
            if next(rows, _HEADER) != _HEADER:
                raise InvalidData("has another header")
            self.tally.restore(rows)
        except (InvalidData, OSError) as problem:
            raise RunError(
                f"{self.path} is in the way: it should be what earlier runs have spent on this output ({problem}); "
                f"name another OUT, or delete it to begin with a fresh budget"
            ) from None

    def _note(self, entry: dict[str, Any]) -> None:
        if self._rows is None:
            self._rows = Jsonl(self.path)
            if self._rows.size == 0:
                self._rows.append([_HEADER])
        self._rows.append([entry], sync=False)
