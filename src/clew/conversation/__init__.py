"""The model in the middle: messages, groups, canonical form, keys, and where they came from.

It knows no format, no store and no disk. Readers build it, writers and the residue consume it.
"""
