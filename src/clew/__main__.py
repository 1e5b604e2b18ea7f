"""`python -m clew`: the same as the command `clew`."""

from clew.cli.main import main

main()
