"""What is true whatever stores it: users, and API keys. Pure."""
