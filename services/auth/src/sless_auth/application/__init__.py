"""What auth does: one class a subject."""
