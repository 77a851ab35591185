"""The verbs: enqueue, claim, settle and inspect jobs, in a transaction of their own or of the caller."""
