"""clew's own data: captures of sessions, threads and their edges, and the derived list cache.

Start with `protocol` (what a store promises) and `opening` (how one is got). Callers see plain frozen values
and protocols; SQL, packs and files stay behind them.
"""
