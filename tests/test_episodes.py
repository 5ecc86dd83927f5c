"""Episodes over REST."""

from collections.abc import Callable
from typing import Any

import httpx2


def test_an_episode_is_played_and_ended(start_service: Callable[..., str], noop: Any) -> None:
    url = start_service({"noop": noop})
    with httpx2.Client(base_url=url) as http:
        begun = http.post("/noop/reset", json={"seed": 7, "task_id": "train-2"}).json()
        assert begun["reward"] is None
        assert begun["task_id"] == "train-2"
        episode_id = begun["episode_id"]
        body = {"episode_id": episode_id, "action": {"add": 2.5}, "step": 0}
        first = http.post("/noop/step", json=body)
        assert first.json()["reward"] == 2.5
        assert http.post("/noop/step", json=body).content == first.content
        state = http.get("/noop/state", params={"episode_id": episode_id}).json()
        assert state["total"] == state["total_reward"] == 2.5
        assert http.delete(f"/noop/episodes/{episode_id}").json() == {"ended": True}
        assert http.delete(f"/noop/episodes/{episode_id}").json() == {"ended": False}
        assert noop.open == 0
