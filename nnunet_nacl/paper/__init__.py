"""Repeat the paper: studies, data sets, networks, logits, and its part of a report."""
