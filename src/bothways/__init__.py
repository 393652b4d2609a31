"""Bothways: one bidirectional encoder (BERT) with two front ends, EEG and text."""

__version__ = "0.1.0"
