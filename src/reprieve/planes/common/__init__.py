"""What every plane stands on: loops, workers, faults of one object, the solver, readiness."""
