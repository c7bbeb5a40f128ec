"""What the builder knows without touching anything: archives, layers, builds."""
