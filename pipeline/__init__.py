"""The Spark data source `vela` and the jobs built on it.

The extension in C is used where the broker's build of the same sources is. Executors need no more
than `native`, `protocol` and `pipeline`.
"""

from contextlib import suppress

with suppress(ImportError):
    from native.hot_modules import use_extension

    use_extension()
