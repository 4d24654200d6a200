"""The idle plane's controller: facts in, the engine's decisions, and what it writes."""
