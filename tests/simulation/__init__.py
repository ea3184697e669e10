"""Three brokers and three bookies in one process, on simulated time, disks, network and metadata.

`world` makes the environment deterministic, `network` and `coordination` are outside of the
production classes, `nodes` starts these, `clients` use them, `faults` disturb them, and `checks`
judges the result. `python -m tests.simulation --help`.
"""
