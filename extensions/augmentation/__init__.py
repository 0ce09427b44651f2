"""Batches that are changed before they are trained on."""
