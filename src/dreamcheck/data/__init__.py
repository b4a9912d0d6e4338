"""Recorded episodes: one interface, arrays and NPZ, clips cut by the four conventions."""

from dreamcheck.data.episodes import ArrayEpisodes, Episodes, Split, split_episodes
from dreamcheck.data.npz import FolderEpisodes, read_npz, write_npz
from dreamcheck.data.windows import Clips, Windows

__all__ = [
    "ArrayEpisodes",
    "Clips",
    "Episodes",
    "FolderEpisodes",
    "Split",
    "Windows",
    "read_npz",
    "split_episodes",
    "write_npz",
]
