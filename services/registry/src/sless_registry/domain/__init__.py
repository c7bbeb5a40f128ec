"""Functions, versions and their rules; pure: time and identities are passed in."""
