"""TwoRoom: two rooms, one wall, doors. A batched NumPy simulator equal to stable-worldmodel's."""

from dreamcheck.tasks.tworoom.inputs import PREFIX_STEPS, PREFIX_TEMPLATES
from dreamcheck.tasks.tworoom.navigation import GEOMETRY
from dreamcheck.tasks.tworoom.policies import Exploratory, GoalSeeking, Oracle, Random, Zero
from dreamcheck.tasks.tworoom.task import TwoRoom, TwoRoomState

__all__ = [
    "GEOMETRY",
    "PREFIX_STEPS",
    "PREFIX_TEMPLATES",
    "Exploratory",
    "GoalSeeking",
    "Oracle",
    "Random",
    "TwoRoom",
    "TwoRoomState",
    "Zero",
]
