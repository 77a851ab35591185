"""What others' tools see of a worker; each module needs one optional package."""
