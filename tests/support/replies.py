"""A server's answer to one request whatever its status, for probes of parameters."""

import json
import urllib.error
import urllib.request
from typing import Any

from draftgate.checks.probes import Reply

TIMEOUT_S = 120


def post_for_reply(url: str, body: dict[str, Any]) -> Reply:
    """Post JSON and return status and decoded document, of errors too."""
    request = urllib.request.Request(url, json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return Reply(answer.status, json.loads(answer.read()))
    except urllib.error.HTTPError as error:
        return Reply(error.code, json.loads(error.read()))
