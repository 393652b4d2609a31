"""`python -m bothways`: the command line where its script is not on the path."""

from bothways.cli import main

main()
