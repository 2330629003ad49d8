"""The names under which Prefect keeps what we tell it about an account."""

import hashlib
import re

_PLAIN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_MARKED = re.compile(r".*-[0-9a-f]{16}")
_LONGEST = 60


def key(kind: str, account: str) -> str:
    """Name an artifact or a variable of an account, in small letters, digits and dashes; no two accounts share one.

    >>> key("release", "clinic"), key("release", "Clinic 1")
    ('release-clinic', 'release-clinic-1-6d0f146f6848f98c')
    """
    if _PLAIN.fullmatch(account) and len(account) <= _LONGEST and not _MARKED.fullmatch(account):
        return f"{kind}-{account}"
    # A mark tells "a b" from "a-b". A name that is plain and looks marked gets one too: so no name can imitate another's.
    readable = re.sub(r"[^a-z0-9]+", "-", account.lower())[:_LONGEST].strip("-")
    mark = hashlib.sha256(account.encode()).hexdigest()[:16]
    return "-".join(filter(None, (kind, readable, mark)))
