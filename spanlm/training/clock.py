"""Speed of training."""

from __future__ import annotations

import time


class Clock:
    """Tokens a second of the current epoch since this process began it."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin an epoch, or go on in one."""
        self._began, self._tokens, self.seconds = time.perf_counter(), 0, 0.0

    def add(self, tokens: int) -> None:
        """Count the tokens of a step."""
        self._tokens += tokens
        self.seconds = time.perf_counter() - self._began

    @property
    def rate(self) -> float:
        """Tokens a second; 0 before the first step."""
        return self._tokens / self.seconds if self._tokens else 0.0
