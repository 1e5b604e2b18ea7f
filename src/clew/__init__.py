"""Carry coding-agent conversations between agents, and home again byte for byte."""

__version__ = "0.1.0"
