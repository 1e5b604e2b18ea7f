"""Where a conversation lives and where it came from: handles, links, chains and threads.

Pure: values in, values out; no file, no clock, no store. Refusals are `errors.LeaseError` with a `handle_*` code.
"""
