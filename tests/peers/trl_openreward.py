"""TRL's own adapter to ORS: an episode by its bound tools. It runs beside TRL, with the peers' packages behind its own.

In: `{"url", "site", "tool", "arguments"}`.
"""

import json
import os
import sys
from typing import Any


def main() -> None:
    work: dict[str, Any] = json.load(sys.stdin)
    sys.path.append(work["site"])
    # The SDK would look for its sessions at a subdomain.
    os.environ["OPENREWARD_SESSION_URL"] = work["url"]
    from trl.experimental.openreward import OpenRewardSpec

    spec = OpenRewardSpec(work["url"], num_tasks=2)
    environment: Any = spec.environment_factory()
    prompt = environment.reset(task_index=0)
    said = getattr(environment, work["tool"])(**work["arguments"])
    found = {
        "rows": spec.train_dataset.to_list(),
        "prompt": prompt,
        "said": said,
        "rewards": environment.rewards,
        "finished": environment.finished,
        "scored": spec.reward_funcs([environment]),
    }
    environment._close()
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    # The SDK's threads are no concern here.
    os._exit(0)


main()
