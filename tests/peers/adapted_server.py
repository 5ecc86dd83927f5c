"""Our environment of this name inside of OpenEnv's own server, on a free port; writes its base URL."""

import os
import sys
from typing import Any

from openenv.core.env_server.http_server import create_fastapi_app
from stock_server import serve

from rolloutgym.server.openenv_adapter import Host


def main() -> None:
    name: Any = sys.argv[1]
    host = Host(name)
    serve(
        create_fastapi_app(
            host.environment, host.action_type, host.observation_type, env_name=name, max_concurrent_envs=4
        )
    )
    host.stop()
    # Nothing that keeps a process is left.
    os._exit(0 if not host.service.started else 1)


main()
