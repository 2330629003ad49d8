"""The base class of values that must not leave the private side."""

from abc import abstractmethod
from functools import partial
from typing import NoReturn, SupportsIndex


class Private:
    """A value that reveals nothing of itself to a log, a debugger's repr, a cache, a pickle or a comparison.

    An orchestrator can pass the value from step to step, but finds nothing in it to traverse, store or hash.
    Subclasses are plain classes with slots, never dataclasses or pydantic models, because any library can list the fields of
    those. Weak references are supported, because orchestrators use them to tell results apart.

    This guards against accidents, not against code that sets out to read the data, as the curator does.

    >>> class Secret(Private):
    ...     __slots__ = ("_value",)
    >>> Secret()
    <Secret: private, not shown>
    >>> Secret() == Secret()
    Traceback (most recent call last):
    TypeError: a Secret is private: it cannot be compared, only measured through a curator
    """

    __slots__ = ("__weakref__",)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: private, not shown>"

    def __str__(self) -> str:
        return repr(self)

    def __format__(self, format_spec: str, /) -> str:
        return repr(self)

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} is private: it cannot be {what}, only measured through a curator")

    def __reduce__(self) -> NoReturn:
        self._refuse("pickled or copied")

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        self._refuse("pickled or copied")

    def __getstate__(self) -> NoReturn:
        self._refuse("pickled or copied")

    def __hash__(self) -> NoReturn:  # noqa: PLE0309  it always raises
        self._refuse("hashed")

    def __eq__(self, other: object, /) -> NoReturn:
        self._refuse("compared")

    def __ne__(self, other: object, /) -> NoReturn:
        self._refuse("compared")

    def __lt__(self, other: object, /) -> NoReturn:
        self._refuse("compared")

    def __le__(self, other: object, /) -> NoReturn:
        self._refuse("compared")

    def __gt__(self, other: object, /) -> NoReturn:
        self._refuse("compared")

    def __ge__(self, other: object, /) -> NoReturn:
        self._refuse("compared")

    def __bool__(self) -> NoReturn:  # noqa: PLE0304  likewise
        self._refuse("tested for being empty")

    def __len__(self) -> NoReturn:  # noqa: PLE0303  likewise
        self._refuse("counted")

    def __iter__(self) -> NoReturn:
        self._refuse("iterated over")

    def __contains__(self, item: object, /) -> NoReturn:
        self._refuse("searched")

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        self._refuse("converted to an array")


class Carried(Private):
    """A private value that the steward's own machines exchange. It can be pickled, and otherwise reveals nothing.

    >>> class Note(Carried):
    ...     __slots__ = ()
    ...     def _parts(self):
    ...         return {}
    >>> Note()
    <Note: private, not shown>
    >>> make, nothing = Note().__reduce__()
    >>> make()
    <Note: private, not shown>
    """

    __slots__ = ()

    @abstractmethod
    def _parts(self) -> dict[str, object]:
        """Return the constructor's keyword arguments."""

    def __reduce__(self) -> tuple["partial[Carried]", tuple[()]]:  # type: ignore[override]
        return partial(type(self), **self._parts()), ()

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> tuple["partial[Carried]", tuple[()]]:  # type: ignore[override]
        return self.__reduce__()
