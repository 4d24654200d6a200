"""The types of the arrays that a snapshot's columns are made of.

They stand below all modules that make such columns, so that none of these has to import the
snapshot for a type.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["I32", "I64", "U8", "Mask"]

I64: TypeAlias = NDArray[np.int64]
I32: TypeAlias = NDArray[np.int32]
U8: TypeAlias = NDArray[np.uint8]
Mask: TypeAlias = NDArray[np.bool_]
