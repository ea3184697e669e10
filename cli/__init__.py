"""The `vela` command, and the tools that only the command uses."""
