"""Why a unit waits, and what would let it start: decided by the engine, not told from prose."""
