"""`python -m reprieve` is the `reprieve` command."""

from reprieve.cli.main import main

main()
