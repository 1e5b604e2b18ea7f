"""The operation `review`: every changed file of a diff is an item, and a model is asked about each.

git.py        the git command, with everything that could move pinned down
diff.py       the changes of a range, a commit, the index or the work tree, file by file
glob.py       patterns over paths
rules.py      rule layers, the file filter, their digest
selection.py  which of the changes are reviewed, and why the others are not
question.py   what is asked about one file
asking.py     who is asked: the protocol, and patience with the network
headless.py   agents as they run without a terminal: launched, heard, ended
agents.py     how each agent is called then, and what it writes
endpoint.py   OpenAI-compatible and Anthropic endpoints
checkout.py   the sealed commit in a work tree of its own
operation.py  all of it as an operation of the run machinery
"""
