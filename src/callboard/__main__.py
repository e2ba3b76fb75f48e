"""`python -m callboard`: the command line, where the console script is not on PATH."""

from callboard.cli import main

main()
