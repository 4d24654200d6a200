"""What happens: intents, the executor, recovery and the one place that evicts others' objects."""
