"""Diagnostics of a trained model: is it fit to plan with, does it see through noise?"""
