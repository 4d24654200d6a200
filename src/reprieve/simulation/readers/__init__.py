"""The forms of traces that are read, by the name that a study gives them; one module for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from reprieve.simulation.readers.csv_form import read_csv
from reprieve.simulation.readers.gavel import read_gavel
from reprieve.simulation.readers.helios import read_helios
from reprieve.simulation.readers.kueue import read_kueue
from reprieve.simulation.readers.kwok import read_kwok
from reprieve.simulation.readers.openb import read_openb, read_openb_2025
from reprieve.simulation.readers.pai import read_pai
from reprieve.simulation.readers.philly import read_philly
from reprieve.simulation.readers.sacct import read_sacct
from reprieve.simulation.readers.swf import read_swf
from reprieve.simulation.trace import Trace

__all__ = ["READERS", "Reader"]

#: Reads a file; called with its path and the name of the trace.
Reader = Callable[[Path, str], Trace]

READERS: Final[Mapping[str, Reader]] = {
    "csv": read_csv,
    "acme": read_helios,
    "gavel": read_gavel,
    "helios": read_helios,
    "kueue": read_kueue,
    "kwok": read_kwok,
    "openb": read_openb,
    "openb-2025": read_openb_2025,
    "pai": read_pai,
    "philly": read_philly,
    "sacct": read_sacct,
    "swf": read_swf,
}
