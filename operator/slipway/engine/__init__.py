"""The reconcile loop: observe, decide, persist, apply, emit. The only place where pure code and I/O meet."""
