"""Real agents, driven offline: the outside judges of what clew writes."""
