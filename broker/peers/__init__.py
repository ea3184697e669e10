"""Other brokers: their addresses, connections to them, and which of them owns a topic."""
