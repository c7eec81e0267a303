"""Files ↔ model."""
