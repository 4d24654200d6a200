"""`python -m tests.crash.small_parts ...` is `reprieve` with records in parts of a victim or two.

So a plan of a test's size stands in several parts, as one of thousands of victims does.
"""

from reprieve.records.plans import parts

parts.SIZES = parts.Sizes(head=10, part=560)  # type: ignore[misc]

# Whoever writes records takes the sizes when it is imported.
from reprieve.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
