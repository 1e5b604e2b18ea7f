"""What the operating system does differently: clock, files, locks, processes, and named fault points.

No policy lives here: nothing of this room knows a session, an agent or a store.
"""
