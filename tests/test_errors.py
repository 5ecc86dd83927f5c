"""Errors: one type for each code, one form, and nothing in it that should not be."""

import pytest

from rolloutgym.models import ErrorBody, ErrorCode
from rolloutgym.server import errors
from rolloutgym.server.routes.faults import error_response


def all_errors() -> list[type[errors.ServiceError]]:
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ServiceError)][
        1:
    ]


def test_every_code_has_one_type() -> None:
    codes = [kind.code for kind in all_errors()]
    assert sorted(codes) == sorted(ErrorCode)


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_an_error_says_code_boundary_and_whether_to_try_again(kind: type[errors.ServiceError]) -> None:
    error = errors.CapacityReached(3) if kind is errors.CapacityReached else kind("what happened", episode_id="e")
    response = error_response(error)
    detail = ErrorBody.model_validate_json(bytes(response.body)).error
    assert (detail.code, detail.boundary, detail.retryable) == (kind.code, kind.boundary, kind.retryable)
    assert (detail.message, detail.episode_id) == (error.message, error.episode_id)
    assert response.status_code == kind.status
    assert ("retry-after" in response.headers) == (kind.status == 503)


def test_faults_of_ours_are_retryable_where_a_retry_may_help() -> None:
    retryable = {kind.code for kind in all_errors() if kind.retryable}
    assert retryable == {
        "episode_busy", "step_timeout", "capacity_reached", "shutting_down", "store_unavailable", "worker_lost",
        "sandbox_unavailable",
    }  # fmt: skip
    assert all(kind.status >= 500 or kind.status == 409 for kind in all_errors() if kind.retryable)
