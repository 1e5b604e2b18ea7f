"""The durable, ordered log of what was asked of a live session and what came of it.

Pure: rows in, rows out; the caller writes them, in one transaction with the lease's checkpoint. Nothing here sends
anything, and nothing here ever decides that something was not delivered because time passed.
"""
