"""Driving real agents: what an adapter promises, and the children it starts.

An adapter knows one agent's program and its own history; it knows nothing of leases, stores or the ledger. The
orchestrator (`clew.verbs.attach`) holds those and calls the adapter in its fixed order.
"""
