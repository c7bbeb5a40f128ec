"""`sless dev`: a folder run on this machine by the real runtime, without a platform."""
