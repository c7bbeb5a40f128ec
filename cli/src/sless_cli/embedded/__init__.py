"""The embedded platform: PostgreSQL and every service as child processes of one supervisor, for one machine."""
