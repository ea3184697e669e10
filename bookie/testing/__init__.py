"""Tools for testing storage code: a disk and an index that lose writes that were not synced."""
