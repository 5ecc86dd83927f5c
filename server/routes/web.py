"""The page for people: plays an episode over the REST API, and reads episode files in the browser.

Static and self-contained. Its policy lets the browser load and call nothing but this service, and run no inline script,
so that text which a model wrote stays text.
"""

from importlib.resources import files
from types import MappingProxyType

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

from rolloutgym.server.errors import NotFound

router = APIRouter(include_in_schema=False)

_HEADERS = MappingProxyType(
    {
        "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
)
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_FILES = {
    file.name: (file.read_bytes(), _TYPES[file.name[file.name.rindex(".") :]])
    for file in files("rolloutgym.server").joinpath("web").iterdir()
}


@router.get("/")
@router.get("/web")
async def root() -> RedirectResponse:
    return RedirectResponse("web/")


@router.get("/web/")
async def page() -> Response:
    return _answer("index.html")


@router.get("/web/{name}")
async def asset(name: str) -> Response:
    return _answer(name)


def _answer(name: str) -> Response:
    if name not in _FILES:
        raise NotFound("no such page")
    content, media_type = _FILES[name]
    return Response(content, media_type=media_type, headers=_HEADERS)
