"""The idle plane: who holds GPUs without using them, and for whom they are preempted."""
