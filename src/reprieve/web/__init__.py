"""The web page: who holds, who waits, who made way and why. It reads, and changes nothing."""
