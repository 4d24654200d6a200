"""The scheduling cycle: attempts, their effects, preemptions and bindings."""
