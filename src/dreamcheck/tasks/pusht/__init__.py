"""PushT: stable-worldmodel's ``swm/PushT-v1`` stepped in worker processes, branched by replay."""

from dreamcheck.tasks.pusht.policies import Random, Weak, Zero
from dreamcheck.tasks.pusht.task import PushT, PushTState

__all__ = ["PushT", "PushTState", "Random", "Weak", "Zero"]
