"""From files, variables and options to the configuration of a broker."""
