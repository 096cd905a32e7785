"""POST of JSON over HTTP: certificates are checked, a redirect to another host is not followed, nothing of the URL is told but its host."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from gpuclinic import __version__
from gpuclinic.watch.channels._message import ChannelError

if TYPE_CHECKING:
    from email.message import Message as Headers

DEADLINE_S = 15.0
_READ = 1 << 16


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Another host could be anybody's: alerts tell of machines, and headers carry tokens."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Headers,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Only to the same scheme, host and port, with the body sent again."""
        del fp, msg, headers
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if (old.scheme, old.hostname, old.port) != (new.scheme, new.hostname, new.port):
            raise ChannelError(
                f"{old.hostname}: redirects to another host ({new.hostname}), which is not followed", last=True
            )
        if code not in (307, 308):
            raise ChannelError(
                f"{old.hostname}: answers {code}, which would turn the message into a question", last=True
            )
        headers_kept = {k: v for k, v in req.header_items() if k.lower() not in ("host", "content-length")}
        return urllib.request.Request(newurl, data=req.data, headers=headers_kept, method="POST")  # noqa: S310 - the scheme is the same


def post(url: str, body: bytes, headers: dict[str, str]) -> None:
    """Sends; raises ChannelError with the host and the reason. last: the answer was that the message itself is not wanted."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ChannelError("the URL of the channel is not http:// or https://", last=True)
    request = urllib.request.Request(  # noqa: S310 - the scheme was looked at
        url, data=body, method="POST",
        headers={"Content-Type": "application/json", "User-Agent": f"gpuclinic/{__version__}", **headers},
    )  # fmt: skip
    opener = urllib.request.build_opener(_SameHost)
    try:
        with opener.open(request, timeout=DEADLINE_S) as answer:
            answer.read(_READ)
    except urllib.error.HTTPError as problem:
        refused = 400 <= problem.code < 500 and problem.code not in (401, 403, 408, 429)
        problem.close()
        raise ChannelError(f"{parts.hostname}: HTTP {problem.code}", last=refused) from None
    except urllib.error.URLError as problem:
        raise ChannelError(f"{parts.hostname}: {getattr(problem.reason, 'strerror', None) or problem.reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as problem:
        raise ChannelError(f"{parts.hostname}: {type(problem).__name__}") from None
