"""A reporter that asks to stop in the middle of the work."""

from __future__ import annotations

from rtlab.core.progress import Silent


class Stopping(Silent):
    """Asks to stop after so many steps, or at once."""

    def __init__(self, steps: int = 0) -> None:
        super().__init__()
        self.left = steps
        self.advance(0)

    def advance(self, steps: int = 1) -> None:
        """Count."""
        self.left -= steps
        if self.left <= 0:
            self.cancel()
