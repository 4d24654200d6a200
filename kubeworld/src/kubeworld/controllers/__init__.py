"""Controllers as pure functions of an owner, its dependants and the time."""
