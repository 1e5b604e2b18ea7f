"""The command line: options, rendering and exit statuses over the verbs.

Here, and only here, the environment, the home folder and the terminal are read. No command decides what happens to
a session: it calls one verb, and says what came of it.
"""
