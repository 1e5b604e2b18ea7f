"""What clew does: one module a verb, named like its command. Faces call these and show what they return."""
