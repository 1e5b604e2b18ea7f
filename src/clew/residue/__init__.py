"""The residue: a source cut into segments, found again by the content of the conversation, and put back.

It knows neither formats nor stores: what it needs of them is passed in as small protocols.
"""
