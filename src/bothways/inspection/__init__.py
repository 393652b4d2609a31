"""Looking inside: named tensors of a pass."""

from bothways.inspection.look import Look, look
from bothways.inspection.trace import tap_names, trace

__all__ = ["Look", "look", "tap_names", "trace"]
