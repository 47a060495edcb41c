"""`python -m gr2` is the same as `gr2`."""

from gr2.cli import main

main()
