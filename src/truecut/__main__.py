"""`python -m truecut` is `truecut`."""

from truecut.cli.entry import main

main()
