"""Who may write to a session now: session records, leases, probes, reservations and the operation ledger.

Pure: values in, values out; no process is asked, no clock read, no store touched. A decision is a value; a transition
that does not apply raises `errors.LeaseError` with the code and reason of `clew.lease.refusal`.
"""
