"""Runs: work over many items that can be interrupted, and never mixes two inputs.

    operation.py    what an operation is: items, a sealed input, a worker
    settings.py     what a run is given, and what it gives back
    engine.py       carries a run out: admitted, sealed, item after item, to its manifest
    admission.py    may this command go on from that run? every check in its order
    fingerprint.py  digests: items, contents, rules, remotes
    manifest.py     the immutable record of a run          builder.py      makes it, with its two boundaries
    reason.py       reasons made safe at the door          lineage.py      the event of a resumed run
    log.py          the chain of records on the disk       checkpoints.py  what a resume reads from it
    active.py       the lock that tells running from dead  folder.py       where runs lie
    summary.py      listed and shown                       compare.py      two runs, finding by finding
    finding.py      one remark of a review                 report.py, sarif.py
    review/         the operation `review`                 translate.py, sessions.py: the operation `translate`

Nothing here reads the environment, the home folder or the clock: `RunSettings` hands them in.
"""
