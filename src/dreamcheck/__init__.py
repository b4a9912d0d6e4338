"""Dreamcheck checks what a world model imagines against what really happens."""

__version__ = "0.1.0"
