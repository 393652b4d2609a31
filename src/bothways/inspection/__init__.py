"""Looking inside: named tensors of a pass, and what a score rests on."""

from bothways.inspection.look import Look, look
from bothways.inspection.occlusion import Hidden, Occlusion, occlude
from bothways.inspection.trace import tap_names, trace

__all__ = ["Hidden", "Look", "Occlusion", "look", "occlude", "tap_names", "trace"]
