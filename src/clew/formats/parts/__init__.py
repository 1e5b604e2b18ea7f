"""Contents of the Gemini API as agents keep them: a role and a list of parts. What the formats of such agents share.

A part is a text (a thought where it says so), a call, a response, or bytes in place. The agents differ in the records
around them: those are rooms of their own.
"""
