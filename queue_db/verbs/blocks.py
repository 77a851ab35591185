"""New jobs on their way into the database: chunks of checked and encoded jobs, and blocks of chunks that are sent together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

from queue_db.model import NewJob
from queue_db.verbs.new_jobs import CHUNK

Chunks = Iterator[list[NewJob]]

# A block that is read from an iterator ends after this many characters of payload. This limits the memory: two blocks are in
# memory at a time.
_CHARACTERS = 1 << 22


class Block(NamedTuple):
    """Chunks that are sent to the database together."""

    chunks: Iterable[list[NewJob]]
    number: int  #: the number of jobs in the chunks


@dataclass(frozen=True)
class Blocks:
    """All jobs of one call.

    :param read: returns the blocks. Read each block in full before the next one.
    :param several: whether there is more than one block.
    :param lazy: the jobs are in memory, and each chunk is built when it is read.
    """

    read: Callable[[], Iterator[Block]]
    several: bool
    lazy: bool

    @property
    def repeatable(self) -> bool:
        """Whether :attr:`read` may be called again."""
        return self.lazy or not self.several

    def chunks(self) -> Chunks:
        """All chunks, from the first."""
        return (chunk for block in self.read() for chunk in block.chunks)


def from_memory(chunks: Callable[[], Chunks], number: int, most: int) -> Blocks:
    """Divide ``number`` jobs in memory into blocks of up to ``most`` jobs. Reading them takes no wait and can be repeated.

    :param chunks: each call returns all chunks, beginning with the first.
    """
    return Blocks(lambda: _parts(chunks(), number, most), several=number > most, lazy=True)


def from_iterator(chunks: Chunks, most: int) -> Blocks | None:
    """Divide the jobs of an iterator into blocks of up to ``most`` jobs; return None if there are no jobs.

    Each block is complete before it is returned: reading a chunk may take long, and an insert should not wait for a chunk.
    """
    blocks = _gathered(chunks, most)
    first = next(blocks, None)
    if first is None:
        return None
    second = next(blocks, None)
    if second is None:
        return Blocks(lambda: iter([first]), several=False, lazy=False)
    return Blocks(lambda: chain([first, second], blocks), several=True, lazy=False)


def _parts(chunks: Chunks, number: int, most: int) -> Iterator[Block]:
    for start in range(0, number, most):
        if number - start <= most:
            yield Block(chunks, number - start)
        else:
            yield Block(islice(chunks, most // CHUNK), most)


def _gathered(chunks: Chunks, most: int) -> Iterator[Block]:
    block: list[list[NewJob]] = []
    number = characters = 0
    for chunk in chunks:
        block.append(chunk)
        number += len(chunk)
        characters += sum([len(job.payload) for job in chunk])
        if number >= most or characters > _CHARACTERS:
            yield Block(block, number)
            block, number, characters = [], 0, 0
    if block:
        yield Block(block, number)
