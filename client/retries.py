"""When a failed request is sent again: after transport faults and errors that the service calls retryable, and then
after the wait that the service asks for, or an exponential one with jitter.
"""

from dataclasses import dataclass
from typing import TypedDict

from rolloutgym.client.errors import RolloutGymError


class RetryArguments(TypedDict):
    attempts: int
    timeout: None
    wait_initial: float
    wait_max: float
    wait_jitter: float


@dataclass(frozen=True)
class RetryPolicy:
    retries: int
    """How often a request is sent again; 0 is never."""
    longest_wait_s: float
    """A service that asks for a longer wait than this is not waited for."""

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise ValueError("retries cannot be negative")

    def backoff(self, error: Exception) -> bool | float:
        """For `stamina.retry_context(on=…)`: whether to try again, or after how many seconds."""
        if not isinstance(error, RolloutGymError) or not error.retryable:
            return False
        if error.retry_after_s is None:
            return True
        return error.retry_after_s if error.retry_after_s <= self.longest_wait_s else False

    def arguments(self) -> RetryArguments:
        return {
            "attempts": self.retries + 1,
            "timeout": None,
            "wait_initial": 0.2,
            "wait_max": 5.0,
            "wait_jitter": 0.2,
        }
