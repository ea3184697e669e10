"""The functions of the extension in Python: the reference, and what runs without a compiler."""
