"""The outside, behind the ports."""
