"""What a client raises: one flat type per error code of the service, and `ConnectionFailed` for the way to it.

None of them is ever a reward: a trainer that meets one leaves the rollout out of its batch. `retryable` says whether
the same request may succeed later; the client has then already tried again as often as it was told to. All pickle, so
that a worker process can hand them to its trainer.
"""

from typing import ClassVar, Literal

from rolloutgym.models import Answer, ErrorCode

CONNECTION_FAILED = "connection_failed"

Boundary = Literal["request", "session", "environment", "sandbox", "store", "service", "transport"]


class RolloutGymError(Exception):
    """Base of all. Raised itself only for a code that this version of the client does not know."""

    def __init__(
        self,
        code: ErrorCode | str,
        boundary: Boundary | str,
        message: str,
        retryable: bool = False,
        episode_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(code, boundary, message, retryable, episode_id, retry_after_s)
        self.code = code
        self.boundary = boundary
        """Which part failed."""
        self.message = message
        self.retryable = retryable
        self.episode_id = episode_id
        self.retry_after_s = retry_after_s
        """How long the service asked to wait before the next try, seconds."""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class ServiceFault(RolloutGymError):
    """Base of the errors that the service answered with."""

    answers_to: ClassVar[ErrorCode]


class InvalidJson(ServiceFault):
    answers_to = ErrorCode.INVALID_JSON


class InvalidRequest(ServiceFault):
    """A body, an action or an option that does not fit its schema."""

    answers_to = ErrorCode.INVALID_REQUEST


class UnknownMessage(ServiceFault):
    """A WebSocket message of a type that the service does not speak."""

    answers_to = ErrorCode.UNKNOWN_MESSAGE


class PayloadTooLarge(ServiceFault):
    answers_to = ErrorCode.PAYLOAD_TOO_LARGE


class Unauthorized(ServiceFault):
    """No API key, or not the service's."""

    answers_to = ErrorCode.UNAUTHORIZED


class ForbiddenOrigin(ServiceFault):
    answers_to = ErrorCode.FORBIDDEN_ORIGIN


class NotFound(ServiceFault):
    """No such route; perhaps an environment that this service does not serve."""

    answers_to = ErrorCode.NOT_FOUND


class MethodNotAllowed(ServiceFault):
    answers_to = ErrorCode.METHOD_NOT_ALLOWED


class TaskNotFound(ServiceFault):
    """No such task id, split or index."""

    answers_to = ErrorCode.TASK_NOT_FOUND


class EpisodeNotFound(ServiceFault):
    """The episode was closed, was idle for too long, or never was."""

    answers_to = ErrorCode.EPISODE_NOT_FOUND


class EpisodeNotReset(ServiceFault):
    """A step before a reset."""

    answers_to = ErrorCode.EPISODE_NOT_RESET


class EpisodeDone(ServiceFault):
    """A step after the episode's end."""

    answers_to = ErrorCode.EPISODE_DONE


class EpisodeBusy(ServiceFault):
    """Another request has changed the episode meanwhile; nothing was done."""

    answers_to = ErrorCode.EPISODE_BUSY


class StepConflict(ServiceFault):
    """The episode is not at the step that was sent, or took another action there: somebody else plays it too."""

    answers_to = ErrorCode.STEP_CONFLICT


class StepTimeout(ServiceFault):
    """The step outlived its deadline; it did not take effect."""

    answers_to = ErrorCode.STEP_TIMEOUT


class CapacityReached(ServiceFault):
    """As many episodes live as the service holds."""

    answers_to = ErrorCode.CAPACITY_REACHED


class ShuttingDown(ServiceFault):
    answers_to = ErrorCode.SHUTTING_DOWN


class StoreUnavailable(ServiceFault):
    answers_to = ErrorCode.STORE_UNAVAILABLE


class WorkerLost(ServiceFault):
    """A process that ran the step died; the step did not take effect."""

    answers_to = ErrorCode.WORKER_LOST


class SandboxUnavailable(ServiceFault):
    answers_to = ErrorCode.SANDBOX_UNAVAILABLE


class Internal(ServiceFault):
    """A defect of the service; its log has more."""

    answers_to = ErrorCode.INTERNAL


class ConnectionFailed(RolloutGymError):
    """No answer, or none that the service gave: unreachable, timed out, dropped, a proxy's page."""

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = True,
        episode_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(CONNECTION_FAILED, "transport", message, retryable, episode_id, retry_after_s)

    def __reduce__(self) -> tuple[object, ...]:
        return _connection_failed, (self.message, self.retryable, self.episode_id, self.retry_after_s)


def _connection_failed(
    message: str, retryable: bool, episode_id: str | None, retry_after_s: float | None
) -> ConnectionFailed:
    return ConnectionFailed(message, retryable=retryable, episode_id=episode_id, retry_after_s=retry_after_s)


FAULTS: dict[str, type[ServiceFault]] = {cls.answers_to.value: cls for cls in ServiceFault.__subclasses__()}
"""By error code."""


class ErrorAnswer(Answer):
    """The service's error object, read leniently: a newer service may have codes and boundaries of its own."""

    code: str
    boundary: str
    message: str
    retryable: bool = False
    episode_id: str | None = None

    def exception(self, retry_after_s: float | None = None) -> RolloutGymError:
        fault = FAULTS.get(self.code, RolloutGymError)
        return fault(self.code, self.boundary, self.message, self.retryable, self.episode_id, retry_after_s)
