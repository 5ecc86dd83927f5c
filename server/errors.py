"""What can go wrong in the service: one flat type per cause, with its code, the boundary that failed, its HTTP status.

A model's mistake is not among them: that is an observation. These are faults of the caller or of ours, and none of them
ever becomes a reward.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, TypedDict

from rolloutgym.models import ErrorBody, ErrorCode, ErrorDetail

Boundary = Literal["request", "session", "environment", "sandbox", "store", "service"]


class ServiceError(Exception):
    """Base of all typed faults. The message is shown to the caller: no path, no stack, nothing of a task's answer."""

    code: ClassVar[ErrorCode]
    boundary: ClassVar[Boundary]
    status: ClassVar[int]
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, episode_id: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.episode_id = episode_id

    def body(self) -> ErrorBody:
        return ErrorBody(
            error=ErrorDetail(
                code=self.code,
                boundary=self.boundary,
                message=self.message,
                retryable=self.retryable,
                episode_id=self.episode_id,
            )
        )


class InvalidJson(ServiceError):
    code, boundary, status = ErrorCode.INVALID_JSON, "request", 422


class Problem(TypedDict):
    """One misfit, as pydantic reports it, without the value."""

    type: str
    loc: tuple[int | str, ...]
    msg: str


class InvalidRequest(ServiceError):
    """A body, an action or an option that does not fit its schema."""

    code, boundary, status = ErrorCode.INVALID_REQUEST, "request", 422

    def __init__(self, message: str, *, episode_id: str | None = None, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message, episode_id=episode_id)
        self.problems = problems


class UnknownMessage(ServiceError):
    """A WebSocket message of a type that is not spoken here."""

    code, boundary, status = ErrorCode.UNKNOWN_MESSAGE, "request", 422


class PayloadTooLarge(ServiceError):
    code, boundary, status = ErrorCode.PAYLOAD_TOO_LARGE, "request", 413


class Unauthorized(ServiceError):
    code, boundary, status = ErrorCode.UNAUTHORIZED, "request", 401


class ForbiddenOrigin(ServiceError):
    code, boundary, status = ErrorCode.FORBIDDEN_ORIGIN, "request", 403


class NotFound(ServiceError):
    code, boundary, status = ErrorCode.NOT_FOUND, "request", 404


class MethodNotAllowed(ServiceError):
    code, boundary, status = ErrorCode.METHOD_NOT_ALLOWED, "request", 405


class TaskNotFound(ServiceError):
    """No such task id, split or index."""

    code, boundary, status = ErrorCode.TASK_NOT_FOUND, "environment", 404


class EpisodeNotFound(ServiceError):
    code, boundary, status = ErrorCode.EPISODE_NOT_FOUND, "session", 404


class EpisodeNotReset(ServiceError):
    """A step before a reset: refused, never rewarded."""

    code, boundary, status = ErrorCode.EPISODE_NOT_RESET, "session", 409


class EpisodeDone(ServiceError):
    """A step after the episode's end."""

    code, boundary, status = ErrorCode.EPISODE_DONE, "session", 409


class EpisodeBusy(ServiceError):
    """Another request has changed the episode meanwhile; nothing was done."""

    code, boundary, status, retryable = ErrorCode.EPISODE_BUSY, "session", 409, True


class StepConflict(ServiceError):
    """The step number is not the one that comes next, or its action differs from the one that was taken."""

    code, boundary, status = ErrorCode.STEP_CONFLICT, "session", 409


class StepTimeout(ServiceError):
    """The step outlived its deadline; it did not take effect."""

    code, boundary, status, retryable = ErrorCode.STEP_TIMEOUT, "environment", 504, True


class CapacityReached(ServiceError):
    code, boundary, status, retryable = ErrorCode.CAPACITY_REACHED, "session", 503, True

    def __init__(self, capacity: int) -> None:
        super().__init__(f"all {capacity} places for live episodes are taken")
        self.capacity = capacity


class ShuttingDown(ServiceError):
    code, boundary, status, retryable = ErrorCode.SHUTTING_DOWN, "service", 503, True


class StoreUnavailable(ServiceError):
    code, boundary, status, retryable = ErrorCode.STORE_UNAVAILABLE, "store", 503, True


class WorkerLost(ServiceError):
    """A worker process that ran the step died; the step did not take effect."""

    code, boundary, status, retryable = ErrorCode.WORKER_LOST, "environment", 503, True


class SandboxUnavailable(ServiceError):
    code, boundary, status, retryable = ErrorCode.SANDBOX_UNAVAILABLE, "sandbox", 503, True


class Internal(ServiceError):
    code, boundary, status = ErrorCode.INTERNAL, "service", 500
