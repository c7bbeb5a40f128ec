"""What the ports are made of on this or that platform."""
