"""One process at a time writes a file: a lock beside it that the kernel drops with the process, and that leaves nothing
behind.

Enters: the path of the lock. Leaves: a `Lock`, or `BlockingIOError` where another process holds it. The file is
removed while it is still held, so whoever opened it just before holds a lock on nothing: `Lock` looks whether what it
locked is what lies there, and tries again where it is not.
"""

import fcntl
import os
from pathlib import Path

from text2grad.runs import Closable


class Lock(Closable):
    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None
        while not self._taken():
            pass

    def close(self) -> None:
        if self._handle is not None:
            self.path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = None

    def _taken(self) -> bool:
        """Whether the lock that lies there now is ours; false where it was removed under our hands."""
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), self.path.stat()):
                self._handle = handle
                return True
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        return False
