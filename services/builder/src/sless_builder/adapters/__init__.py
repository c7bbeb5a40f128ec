"""The builder's ports, made of something."""
