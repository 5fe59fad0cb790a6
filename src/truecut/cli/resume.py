"""`truecut resume`, the counterpart of `truecut pause`."""

from truecut.cli.pause import resume_command as command

__all__ = ["command"]
