"""What Schemathesis cannot know of a running gateway (the environment's FUZZ_KNOWN), put into some of what it sends."""

import json
import os
import re
from urllib.parse import quote
from zlib import crc32

import schemathesis

known = json.loads(os.environ["FUZZ_KNOWN"])

# What the schema of a body has no words for, such as "not blank" or "one of the two": the first case of each has it.
bodies = {
    "PATCH /v1/conversations/{conversation}/transcript/{locator}": {"text": "other words"},
    "POST /v1/conversations": {"specialist": known["own_specialist"]},
    "POST /v1/conversations/{conversation}/messages": {"text": "hello"},
    "POST /v1/conversations/{conversation}/replies": {"text": "a reply"},
    "POST /v1/organization/environment/reissue": {"all": True},
    "POST /v1/retention/purges": {"targets": {"failedProseBefore": "2030-01-31T12:00:00Z"}},
    "POST /v1/specialists": {"name": "Alan", "persona": "You are Alan."},
    "POST /v1/tokens": {"role": "client", "name": "another"},
    "POST /v1/users": {"name": "Edsger", "role": "client"},
    "PUT /v1/organization/environment": {"variables": {"A": "b"}},
    "PUT /v1/users/{user}/specialists": {"specialists": [known["specialist"]]},
}
headers = {
    "PATCH /v1/conversations/{conversation}/transcript/{locator}": {"If-Match": known["etag"]},
    "POST /v1/conversations/{conversation}/replies": {"Idempotency-Key": "a-reply"},
}
# Of a message that is waiting there is none: the first cancellation is of whatever runs.
queries = {"POST /v1/conversations/{conversation}/cancel": {}}
# Ids that the gateway has named: links lead to them.
given = set()


def _is_allowed(case):
    return case.meta is not None and case.meta.generation.mode.is_positive


def _takes(case, value):
    """True for what the document allows, and for three of four other values: always the same ones, so that the seed decides."""
    return _is_allowed(case) or crc32(str(value).encode("utf-8", "surrogatepass")) % 4 != 0


@schemathesis.hook
def filter_case(context, case):
    # Bun itself ends a request with more than 16 KiB before its body, with 431 and no document.
    parts = [case.path_parameters or {}, case.query or {}, case.headers or {}]
    return sum(len(quote(str(value))) for part in parts for value in part.values()) < 6000


@schemathesis.hook
def before_call(context, case, kwargs):
    label = case.operation.label
    path = case.path_parameters or {}
    is_first = _is_allowed(case) and label in bodies and case.media_type == "application/json"
    for name, value in list(path.items()):
        if name in known and (is_first or (value not in given and _takes(case, value))):
            path[name] = known[name]
    # It finds its own token in the list of tokens, and would revoke it.
    if path.get("token") == known["own_token"]:
        path["token"] = known["token"]
    if label == "GET /v1/conversations/{conversation}/files/content" and _takes(case, case.query):
        case.query["uri"] = known["uri"]
    if _is_allowed(case) and label in queries:
        case.query = queries.pop(label)
    if is_first:
        case.body = bodies.pop(label)
        case.headers.update(headers.get(label, {}))


@schemathesis.hook
def after_call(context, case, response):
    if response.status_code < 300 and response.headers.get("content-type", [""])[0].startswith("application/json"):
        given.update(re.findall(r'"(?:id|locator)":"([^"]{1,200})"', response.text))
