"""What is written through one broker, half consumed, and goes on under another."""
