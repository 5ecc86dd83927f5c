"""The client: `Client` for ordinary code, `AsyncClient` for asyncio, and the errors that both raise.

Needs the base package alone: neither FastAPI nor the service is imported.
"""

from rolloutgym.client.async_client import AsyncClient, AsyncEnvironmentHandle, AsyncEpisode
from rolloutgym.client.errors import ConnectionFailed, RolloutGymError
from rolloutgym.client.sync_client import Client, EnvironmentHandle, Episode

__all__ = [
    "AsyncClient",
    "AsyncEnvironmentHandle",
    "AsyncEpisode",
    "Client",
    "ConnectionFailed",
    "EnvironmentHandle",
    "Episode",
    "RolloutGymError",
]
