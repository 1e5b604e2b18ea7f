-- Threads, their strands and the edges between them. Times are microseconds since 1970-01-01 UTC.
CREATE TABLE threads (
    id TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE strands (
    id TEXT PRIMARY KEY,
    thread TEXT NOT NULL,
    agent TEXT NOT NULL,
    native_id BLOB NOT NULL,
    revision INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX strands_by_thread ON strands (thread);
CREATE INDEX strands_by_native_id ON strands (agent, native_id);

CREATE TABLE strand_roots (
    strand TEXT NOT NULL,
    number INTEGER NOT NULL,
    root BLOB NOT NULL,
    PRIMARY KEY (strand, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX strand_roots_by_root ON strand_roots (root);

CREATE TABLE edges (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    from_strand TEXT,
    to_strand TEXT NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX edges_by_from ON edges (from_strand);
CREATE INDEX edges_by_to ON edges (to_strand);
