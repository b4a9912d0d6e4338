"""Where does a world model break? Libraries of valid inputs, search methods, replay, coverage."""

from dreamcheck.discovery.graph import Graph
from dreamcheck.discovery.library import Input, Library
from dreamcheck.discovery.methods import METHODS, make_method
from dreamcheck.discovery.parameters import PARAMETERS, SearchParameters, get_parameters
from dreamcheck.discovery.search import (
    Failure,
    Method,
    Outcome,
    Ranked,
    Score,
    TraceEntry,
)
from dreamcheck.discovery.specification import (
    Coordinate,
    InputSpecification,
    Rule,
    get_specification,
    specification_from,
    specification_names,
)

__all__ = [
    "METHODS",
    "PARAMETERS",
    "Coordinate",
    "Failure",
    "Graph",
    "Input",
    "InputSpecification",
    "Library",
    "Method",
    "Outcome",
    "Ranked",
    "Rule",
    "Score",
    "SearchParameters",
    "TraceEntry",
    "get_parameters",
    "get_specification",
    "make_method",
    "specification_from",
    "specification_names",
]
