"""One room for each agent's format, and what they share: the protocol, framing of JSON lines, marks, the registry."""
