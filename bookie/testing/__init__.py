"""Instruments for testing code that stores: a disk and an index that lose what was not synced."""
