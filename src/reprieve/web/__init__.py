"""The web page: who holds, who waits, who was preempted and why. It reads, and changes nothing."""
