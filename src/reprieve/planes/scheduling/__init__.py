"""The scheduling plane: watches, queue, decisions, bindings, preemptions, statuses."""
