"""Random edits and faults under load, with what must always hold checked all the time: `python -m e2e.soak`."""
