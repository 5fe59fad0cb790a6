"""`python -m truecut` is `truecut`."""

from truecut.cli.main import main

main()
