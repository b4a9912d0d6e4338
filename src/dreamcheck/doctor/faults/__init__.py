"""Graded faults, one file for each check of the same name: each holds ``GENERATOR``."""
