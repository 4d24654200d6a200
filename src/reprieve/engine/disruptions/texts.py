"""Texts by number, packed: what a ledger of a hundred thousand rows remembers of names.

A text is kept as its bytes in one piece with all others; of one that ends in a uid, as the API
server writes them, 16 bytes stand for that. `Names` finds the number of a text as well, by a table
with open addressing: of each text 4 bytes of its hash are kept, and the texts themselves are
compared where those agree. A dictionary would use four times as much. What was looked up lately is
known without either. Numbers run from 0 up, and nothing is removed: to free texts, the caller
copies those that stay into another one (`copy`).
"""

from __future__ import annotations

from array import array
from typing import Final

__all__ = ["Names", "Texts"]

_UID: Final = 36  # characters
_PLAIN: Final = b"\x00"
_WITH_UID: Final = b"\x01"
_HASH: Final = 2**32 - 1
_LEAST_SLOTS: Final = 64
_RECENT: Final = 4_096


class Texts:
    """Texts by number."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("I")

    def append(self, text: str) -> None:
        """Apply a text, whose number is the next one."""
        self._bytes += packed(text)
        self._ends.append(len(self._bytes))

    def append_packed(self, text: bytes | bytearray) -> None:
        """Apply what `packed` returned."""
        self._bytes += text
        self._ends.append(len(self._bytes))

    def at(self, number: int) -> bytearray:
        """Return a text as it is packed."""
        return self._bytes[self._ends[number - 1] if number else 0 : self._ends[number]]

    def __getitem__(self, number: int) -> str:
        return _unpacked(self.at(number))

    def __len__(self) -> int:
        return len(self._ends)


class Names:
    """Texts by number, each once."""

    def __init__(self) -> None:
        self._texts = Texts()
        self._hashes = array("I")
        self._slots = _empty(_LEAST_SLOTS)  # numbers, each one more
        self._mask = _LEAST_SLOTS - 1
        #: Numbers of some that were requested lately: to be looked at where calls are too dear.
        self.lately: dict[str, int] = {}
        self._recent: dict[int, str] = {}

    def number(self, name: str) -> int:
        """Return the number of a name, which is added if it is new."""
        found = self.lately.get(name)
        if found is None:
            hashed = hash(name) & _HASH
            place = self._place(name, hashed)
            found = self._slots[place] - 1
            if found < 0:
                self._texts.append_packed(packed(name))
                return self._reuse(hashed, place)
        return found

    def find(self, name: str) -> int:
        """Return the number of a name, -1 where there is none."""
        found = self.lately.get(name)
        if found is None:
            found = self._slots[self._place(name, hash(name) & _HASH)] - 1
        return found

    def _place(self, name: str, hashed: int) -> int:
        """Return the slot of a name, a free one where it would be stored."""
        slots, hashes, mask = self._slots, self._hashes, self._mask
        place = hashed & mask
        while number := slots[place]:
            if hashes[number - 1] == hashed and self._texts[number - 1] == name:
                if len(self.lately) >= _RECENT:
                    self.lately.clear()
                self.lately[name] = number - 1
                break
            place = (place + 1) & mask
        return place

    def copy(self, other: Names, number: int) -> int:
        """Apply a name of another table, which is not in this one; return its number here."""
        self._texts.append_packed(other._texts.at(number))
        slots, mask, hashed = self._slots, self._mask, other._hashes[number]
        place = hashed & mask
        while slots[place]:
            place = (place + 1) & mask
        return self._reuse(hashed, place)

    def __getitem__(self, number: int) -> str:
        found = self._recent.get(number)
        if found is None:
            if len(self._recent) >= _RECENT:
                self._recent.clear()
            found = self._recent[number] = self._texts[number]
        return found

    def __len__(self) -> int:
        return len(self._hashes)

    def _reuse(self, hashed: int, place: int) -> int:
        """Return the next number, which is that of the name of a free slot from now on."""
        slots, hashes = self._slots, self._hashes
        number = len(hashes)
        hashes.append(hashed)
        slots[place] = number + 1
        # At most two thirds of the slots are used.
        if 3 * number > 2 * self._mask:
            self._slots = _placed(hashes, 2 * len(slots))
            self._mask = len(self._slots) - 1
        return number


def packed(text: str) -> bytes:
    """Return the bytes that stand for a text."""
    if len(text) >= _UID and text[-13] == "-":
        tail = text[-_UID:]
        digits = tail.replace("-", "")
        try:
            uid = bytes.fromhex(digits)
        except ValueError:
            pass
        else:
            # In lower case without spaces, and with the dashes where they belong.
            if uid.hex() == digits and len(uid) == 16 and _dashed(digits) == tail:
                return _WITH_UID + text[:-_UID].encode("utf-8", "surrogatepass") + uid
    try:
        return _PLAIN + text.encode()
    except UnicodeEncodeError:
        return _PLAIN + text.encode("utf-8", "surrogatepass")


def _unpacked(found: bytes | bytearray) -> str:
    if found[0]:
        return found[1:-16].decode("utf-8", "surrogatepass") + _dashed(found[-16:].hex())
    return found[1:].decode("utf-8", "surrogatepass")


def _dashed(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _placed(hashes: array[int], size: int) -> array[int]:
    """Return slots with the numbers of all texts, each at its place or the next that is free."""
    slots, mask = _empty(size), size - 1
    for number, hashed in enumerate(hashes, 1):
        place = hashed & mask
        while slots[place]:
            place = (place + 1) & mask
        slots[place] = number
    return slots


def _empty(slots: int) -> array[int]:
    return array("I", bytes(slots * array("I").itemsize))
