"""Dicts and sets whose keys need not be known: each key is compared with each, which a path may have to decide."""

from collections.abc import Callable, Iterator
from typing import Any

from codezero.code.agreement.polynomials import NotUnderstood


class Table:
    """A dict. `default` makes the value of a key that is missing."""

    def __init__(self, items: Any = (), default: Callable[[], Any] | None = None) -> None:
        self._items: list[list[Any]] = []
        self.default = default
        self.update(items)

    def _find(self, key: Any) -> list[Any] | None:
        return next((item for item in self._items if item[0] == key), None)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def __contains__(self, key: Any) -> bool:
        return self._find(key) is not None

    def __getitem__(self, key: Any) -> Any:
        if (item := self._find(key)) is not None:
            return item[1]
        if self.default is None:
            raise KeyError(key)
        self[key] = value = self.default()
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        if (item := self._find(key)) is not None:
            item[1] = value
        else:
            self._items.append([key, value])

    def get(self, key: Any, default: Any = None) -> Any:
        item = self._find(key)
        return default if item is None else item[1]

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def keys(self) -> list[Any]:
        return [key for key, _ in self._items]

    def values(self) -> list[Any]:
        return [value for _, value in self._items]

    def items(self) -> list[tuple[Any, Any]]:
        return [(key, value) for key, value in self._items]

    def update(self, items: Any) -> None:
        for key, value in items.items() if isinstance(items, Table) else items:
            self[key] = value


class Tally(Table):
    """A Counter."""

    def __init__(self, items: Any = ()) -> None:
        super().__init__()
        for key in items:
            self[key] = self[key] + 1

    def __getitem__(self, key: Any) -> Any:
        return self.get(key, 0)


class Bag:
    """A set. Its order is nobody's business: only one of at most one element can be iterated."""

    def __init__(self, items: Any = ()) -> None:
        self.members: list[Any] = []
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Any]:
        if len(self) > 1:
            raise NotUnderstood("the order of a set")
        return iter(self.members)

    def __contains__(self, item: Any) -> bool:
        return any(item == each for each in self.members)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bag) and len(self) == len(other) and all(each in other for each in self.members)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def add(self, item: Any) -> None:
        if item not in self:
            self.members.append(item)
