"""Protocols by which clients reach topics."""
