"""Loops over runs of messages that `make compile` builds from C, and their twins in Python.

Each module of this room offers functions of one part. They come from the extension
`native._extension` where it was built, and from `native.pure` where it was not. Both have the same
signatures, results and errors, and the same tests.
"""
