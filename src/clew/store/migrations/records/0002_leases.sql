-- Strands become session records: the place, the fence and the claim of their leases. Then the ledger and the journals.
-- A strand without claim was never attached. Times ending in _ms are milliseconds since 1970-01-01 UTC.
ALTER TABLE strands ADD COLUMN scope BLOB;
ALTER TABLE strands ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;
ALTER TABLE strands ADD COLUMN claim TEXT;
CREATE INDEX strands_by_claim ON strands (claim) WHERE claim IS NOT NULL;

-- One row: what the store knows of itself.
CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    store_id TEXT NOT NULL,
    grants INTEGER NOT NULL,
    highest_fence INTEGER NOT NULL,
    fence_floor INTEGER NOT NULL
) STRICT;
INSERT INTO store VALUES (1, lower(hex(randomblob(16))), 0, 0, 0);

CREATE TABLE operations (
    key BLOB PRIMARY KEY,
    caller BLOB NOT NULL,
    fingerprint TEXT NOT NULL,
    state TEXT NOT NULL,
    session TEXT,
    expires_ms INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX operations_by_caller ON operations (caller);
CREATE INDEX operations_by_session ON operations (session);

CREATE TABLE journals (
    name TEXT PRIMARY KEY,
    strand TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    identity BLOB NOT NULL
) STRICT;
CREATE INDEX journals_by_strand ON journals (strand);

CREATE TABLE journal_rows (
    journal TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    kind TEXT NOT NULL,
    time_ms INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (journal, epoch, sequence)
) STRICT, WITHOUT ROWID;
