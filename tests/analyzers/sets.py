"""Sample sets in memory, for tests."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from analyzers.records import Array, Sample


class MemorySamples:
    """Feeds as a set; remembers weakly which arrays it handed out."""

    def __init__(self, feeds: Sequence[dict[str, Array]]) -> None:
        self.feeds = feeds
        self.names = tuple(f"s{i}" for i in range(len(feeds)))
        self.digest = "memory"
        self.handed_out: list[weakref.ref[Array]] = []

    def __len__(self) -> int:
        return len(self.feeds)

    def __getitem__(self, index: int) -> Sample:
        fresh = {name: array.copy() for name, array in self.feeds[index].items()}
        self.handed_out.extend(weakref.ref(array) for array in fresh.values())
        return Sample(self.names[index], fresh)
