"""Confirmed failures kept as a bank, and every later checkpoint tested against it."""

from dreamcheck.gate.bank import Bank, BankEntry, load_bank, save_bank
from dreamcheck.gate.judge import CaseVerdict, GateResult
from dreamcheck.gate.making import bank_from_study
from dreamcheck.gate.replay import gate

__all__ = [
    "Bank",
    "BankEntry",
    "CaseVerdict",
    "GateResult",
    "bank_from_study",
    "gate",
    "load_bank",
    "save_bank",
]
