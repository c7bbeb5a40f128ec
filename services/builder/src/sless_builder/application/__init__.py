"""What the builder does: takes uploads, follows the registry, builds, reports, cleans up."""
