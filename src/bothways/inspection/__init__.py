"""Looking inside: named tensors of a pass."""

from bothways.inspection.trace import tap_names, trace

__all__ = ["tap_names", "trace"]
