"""Who may call: holders of the API key, if there is one, and among browser pages only those of allowed origins. Health
and readiness are open to all, of the service and of each environment.

A page of any site can reach a service on its visitor's machine, WebSockets without even asking; so a request with an
`Origin` needs one from the allow-list, or the service's own. On a loopback address the own origin counts only under a
local name, for a page can give any name of its own a loopback address (DNS rebinding).
"""

import hmac
import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from rolloutgym.server.errors import ForbiddenOrigin, ServiceError, Unauthorized
from rolloutgym.server.metrics import Metrics
from rolloutgym.server.routes.faults import error_response
from rolloutgym.server.settings import Settings

# The page holds no data; it asks for the key itself.
_PAGE = "/web/"


class Gate:
    """ASGI middleware for HTTP and WebSocket."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics, environments: Iterable[str]) -> None:
        self._app = app
        roots = ("", *(f"/{name}" for name in environments))
        self._open = frozenset({"/", *(f"{root}/{path}" for root in roots for path in ("health", "ready"))})
        self._key = None if settings.api_key is None else settings.api_key.get_secret_value().encode()
        self._origins = frozenset(settings.allowed_origins)
        self._on_loopback = is_local_name(settings.host)
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] in ("http", "websocket") else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        self._metrics.errors[refusal.code] += 1
        await error_response(refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> ServiceError | None:
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if origin is not None and not self._may_call(origin, headers.get("host", "")):
            return ForbiddenOrigin("pages of this origin may not call; ROLLOUTGYM_ALLOWED_ORIGINS lists those that may")
        path = scope["path"]
        if self._key is None or path in self._open or path.startswith(_PAGE):
            return None
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            # Where ORS clients carry it.
            key = headers.get("x-api-key", "")
        if hmac.compare_digest(key.strip().encode("latin-1"), self._key):
            return None
        return Unauthorized("this service asks for its key: Authorization: Bearer …")

    def _may_call(self, origin: str, host: str) -> bool:
        if origin in self._origins:
            return True
        try:
            own = urlsplit(origin).netloc.lower() == host.lower()
            return own and (not self._on_loopback or is_local_name(urlsplit(f"//{host}").hostname or ""))
        except ValueError:
            return False


def is_local_name(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
