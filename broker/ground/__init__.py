"""What the rooms of the broker share, and what needs none of them: configuration, entries, turns,
refusals, the order of operations."""
