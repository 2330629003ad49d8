"""Keys of the artifacts and variables that Prefect stores for an account."""

import hashlib
import re

_PLAIN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_HASHED = re.compile(r".*-[0-9a-f]{16}")
_LONGEST = 60


def key(kind: str, account: str) -> str:
    """Return the key of an artifact or variable of an account: lowercase letters, digits and dashes, unique per account.

    >>> key("release", "clinic"), key("release", "Clinic 1")
    ('release-clinic', 'release-clinic-1-6d0f146f6848f98c')
    """
    if _PLAIN.fullmatch(account) and len(account) <= _LONGEST and not _HASHED.fullmatch(account):
        return f"{kind}-{account}"
    # A hash distinguishes "a b" from "a-b". A plain name that looks as if it had one gets one too, so no name can imitate another's key.
    readable = re.sub(r"[^a-z0-9]+", "-", account.lower())[:_LONGEST].strip("-")
    mark = hashlib.sha256(account.encode()).hexdigest()[:16]
    return "-".join(filter(None, (kind, readable, mark)))
