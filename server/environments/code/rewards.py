"""Rewards of the code environment: pure functions from what happened to named components.

| preset     | right | wrong | no answer | small terms                                                     |
|------------|-------|-------|-----------|-----------------------------------------------------------------|
| `binary`   | 1     | -1    | -1        |                                                                 |
| `zero_one` | 1     | 0     | 0         |                                                                 |
| `shaped`   | 1     | 0     | 0         | 0.05 once for code that ran, 0.05 for an answer in the form asked |
| `tests`    | share of tests passed | | 0     |                                                                 |

The small terms stay below any right answer and are taken back where the episode ends without an answer, so that
stopping early never beats trying.
"""

from typing import Literal

Preset = Literal["binary", "zero_one", "shaped", "tests"]
Components = dict[str, float]

CODE_RAN = 0.05
FORMAT = 0.05
REWARD_RANGES: dict[Preset, tuple[float, float]] = {
    "binary": (-1.0, 1.0),
    "zero_one": (0.0, 1.0),
    "shaped": (0.0, 1.0 + CODE_RAN + FORMAT),
    "tests": (0.0, 1.0),
}


def run_components(preset: Preset, *, ran: bool, ran_before: bool) -> Components:
    """For a step that ran code. `ran`: without an error; `ran_before`: an earlier step of the episode did."""
    if preset == "shaped" and ran and not ran_before:
        return {"code_ran": CODE_RAN}
    return {}


def answer_components(preset: Preset, *, correct: bool, well_formed: bool, share_passed: float) -> Components:
    """For the final answer. `share_passed` in [0, 1]: of the tests, or 1 and 0 for a right and a wrong answer."""
    if preset == "tests":
        return {"answer": share_passed}
    if preset == "binary":
        return {"answer": 1.0 if correct else -1.0}
    components = {"answer": 1.0 if correct else 0.0}
    if preset == "shaped" and well_formed:
        components["format"] = FORMAT
    return components


def no_answer_components(preset: Preset, *, ran_before: bool) -> Components:
    """For an episode that ends without an answer."""
    if preset == "binary":
        return {"answer": -1.0}
    components = {"answer": 0.0}
    if preset == "shaped" and ran_before:
        components["no_answer"] = -CODE_RAN
    return components
