"""The address of a store on a server: taken apart once, and never shown with its password.

    postgresql://[user[:password]@][host[:port]][/database][?schema=NAME&...]

`schema` is clew's own (where its tables lie, `clew` where it is not given); everything else is the driver's.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

import msgspec
from blake3 import blake3

from clew.errors import UsageError

SCHEMES: Final = ("postgresql", "postgres")
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")


class Address(msgspec.Struct, frozen=True):
    """Where a store is. `conninfo` is the driver's, with its secrets; `shown` is for people, without any; `given` the
    names of the parameters that it sets itself; `secrets` what must not be shown."""

    conninfo: str
    shown: str
    schema: str
    given: frozenset[str]
    secrets: tuple[str, ...]

    @property
    def key(self) -> str:
        """Names the store among others: 16 hex digits, of nothing secret."""
        return blake3(f"{self.shown}\0{self.schema}".encode()).hexdigest()[:16]

    def scrub(self, text: str) -> str:
        """Returns a text of others without the secrets of this address."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def read_address(url: str) -> Address:
    """Returns the address that a URL names; raises UsageError without repeating what may be secret."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise _unreadable() from None
    if parts.scheme not in SCHEMES:
        raise UsageError(
            f"--store {parts.scheme or 'without a scheme'}: clew keeps its records in a local folder, or on PostgreSQL",
            hint="Write postgresql://USER@HOST/DATABASE, or leave --store out.",
        )
    schema = dict(query).get("schema", "clew")
    if _SCHEMA.match(schema) is None:
        raise UsageError(
            f"--store: {schema!r} is no name of a schema",
            hint="Take lower-case letters, digits and underscores, at most 63.",
        )
    rest = [(name, value) for name, value in query if name != "schema"]
    user, secrets = _userinfo(parts)
    secrets += [value for name, value in rest if "password" in name]
    # Blanks are %20 for the driver, never a plus sign.
    encoded = urlencode(rest).replace("+", "%20")
    host = parts.netloc.rpartition("@")[2] or dict(rest).get("host", "")
    return Address(
        conninfo=f"{parts.scheme}://{parts.netloc}{parts.path}{'?' if encoded else ''}{encoded}",
        shown=f"postgresql://{user + '@' if user else ''}{host}{parts.path}",
        schema=schema,
        given=frozenset(name for name, _ in rest),
        secrets=tuple(sorted({one for one in secrets if one}, key=len, reverse=True)),
    )


def _userinfo(parts: SplitResult) -> tuple[str, list[str]]:
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    return user, [password, unquote(password)]


def _unreadable() -> UsageError:
    return UsageError("--store: that is no address", hint="Write postgresql://USER@HOST/DATABASE.")
