"""The place where an unexpected exception becomes the service's own `Internal`, and is recorded, once.

The log names the exception's type and the code that it passed through. It does not repeat its message or any value:
they may hold a model's text or a task's answer.
"""

import logging
import traceback
from types import TracebackType

from rolloutgym.server.deadlines import DeadlineExceeded
from rolloutgym.server.errors import Internal, ServiceError, StepTimeout

log = logging.getLogger(__name__)


def log_fault(fault: BaseException, episode_id: str | None) -> None:
    where = "".join(traceback.format_tb(fault.__traceback__))
    log.error("%s in episode %s\n%s", type(fault).__name__, episode_id, where)


def as_service_error(fault: BaseException, episode_id: str) -> BaseException:
    """What to raise in place of `fault`: a `ServiceError` of this episode, unless it ends the task or the process."""
    match fault:
        case DeadlineExceeded():
            return StepTimeout(f"no result within {fault.seconds:g} s", episode_id=episode_id)
        case ServiceError():
            fault.episode_id = fault.episode_id or episode_id
            return fault
        case Exception() | SystemExit():
            # A library that calls `sys.exit` must not end the service.
            log_fault(fault, episode_id)
            return Internal("the environment failed", episode_id=episode_id)
    return fault


class EpisodeFaults:
    """Around code of an environment: what goes wrong inside leaves by `as_service_error`."""

    __slots__ = ("_episode_id",)

    def __init__(self, episode_id: str) -> None:
        self._episode_id = episode_id

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, _: TracebackType | None) -> None:
        if fault is not None:
            raise as_service_error(fault, self._episode_id) from None
