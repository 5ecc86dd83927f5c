"""Who may call: holders of the API key, if there is one, and among browser pages only those of allowed origins. Health
and readiness are open to all, of the service and of each environment.

A page of any site can reach a service on its visitor's machine, WebSockets without even asking; so a request with an
`Origin` needs one from the allow-list, or the service's own. Whoever has a public name can give it the service's
address for a moment (DNS rebinding), and then its page has the service's own origin. So where no key is asked for, that
counts only if the name cannot be a stranger's, or if TLS has proved it.
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
        self._open = frozenset({"/", "/web", *(f"{root}/{path}" for root in roots for path in ("health", "ready"))})
        self._key = None if settings.api_key is None else settings.api_key.get_secret_value().encode()
        self._origins = frozenset(settings.allowed_origins)
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
            page = urlsplit(origin)
            own = page.netloc.lower() == host.lower()
            return own and (self._key is not None or page.scheme == "https" or is_private_name(page.hostname or ""))
        except ValueError:
            return False


def is_private_name(host: str) -> bool:
    """Whether no stranger can own this name: an address, or one that public DNS does not have."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host != "" and ("." not in host or host.endswith((".localhost", ".local", ".internal")))
    return True
