"""`vela ledger`: the commands of `inspection`, and the one that needs a broker's records."""

from cli.orphans.command import command as orphans
from inspection.command import command

command.add_command(orphans)
