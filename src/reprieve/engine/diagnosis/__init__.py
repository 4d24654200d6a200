"""Why a unit waits, and what would start it: decided by the engine, not read from prose."""
