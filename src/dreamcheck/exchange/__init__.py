"""Scoring a model of any framework without running it here: questions out, answers in."""

from dreamcheck.exchange.answers import AnswerReport, RecordedAnswers, import_answers, read_answers
from dreamcheck.exchange.queries import Queries, export_queries, read_queries

__all__ = [
    "AnswerReport",
    "Queries",
    "RecordedAnswers",
    "export_queries",
    "import_answers",
    "read_answers",
    "read_queries",
]
