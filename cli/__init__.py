"""The `vela` command, and the tools that are nothing else."""
