"""A visitor of a page that is served here."""

from __future__ import annotations

import http.client
import re
import urllib.parse
from collections.abc import Mapping


def asked(
    url: str, path: str = "", headers: Mapping[str, str] | None = None
) -> tuple[int, bytes, Mapping[str, str]]:
    """Status, body and headers of an answer; the path is sent as it stands, as no browser would."""
    where = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=20)
    connection.putrequest("GET", where.path + path, skip_host=True)
    for name, value in {"Host": where.netloc, **(headers or {})}.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, answer.read(), dict(answer.getheaders())


def loaded(url: str) -> bytes:
    status, page, _ = asked(url)
    assert 200 == status
    name = re.search('<meta name="file" content="/([^"]*)">', page.decode())
    assert name, "Netron's page names no file"
    return asked(url, name[1])[1]
