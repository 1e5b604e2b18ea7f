-- Captures of sessions. Digests, keys and source ids are the 32 raw bytes; times microseconds since 1970-01-01 UTC.
-- What the blobs hold is told in docs/on-disk.md.
CREATE TABLE packs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind INTEGER NOT NULL,           -- 0: segments, 1: side files
    size INTEGER NOT NULL,           -- bytes of the records in it, before compression
    stored INTEGER NOT NULL,         -- bytes of data
    data BLOB NOT NULL               -- one zstd frame
) STRICT;

CREATE TABLE places (
    digest BLOB NOT NULL,
    kind INTEGER NOT NULL,
    pack INTEGER NOT NULL,
    slot INTEGER NOT NULL,           -- number within the pack, from 0
    size INTEGER NOT NULL,           -- bytes
    PRIMARY KEY (digest, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE lists (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    prev INTEGER,                    -- the list that this one continues
    prev_count INTEGER NOT NULL,     -- how many entries of that one come first
    count INTEGER NOT NULL,          -- entries of its own
    depth INTEGER NOT NULL,          -- how many lists stand before it
    keys BLOB NOT NULL,              -- count times 32 bytes
    digests BLOB NOT NULL,           -- count times 32 bytes
    ends BLOB NOT NULL               -- numbers of entries marked end-of-source, 4 bytes little-endian each
) STRICT;

CREATE TABLE captures (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    agent TEXT NOT NULL,
    session_id BLOB,
    source_id BLOB NOT NULL,
    taken_at INTEGER NOT NULL,
    list INTEGER NOT NULL,
    segment_count INTEGER NOT NULL,
    message_count INTEGER NOT NULL,
    side_count INTEGER NOT NULL,
    size INTEGER NOT NULL,
    first_key BLOB,
    identity BLOB NOT NULL,          -- digest of everything but id and taken_at; empty: known to be damaged
    body BLOB NOT NULL
) STRICT;
CREATE INDEX captures_by_first_key ON captures (first_key, agent);
CREATE INDEX captures_by_source ON captures (source_id, agent);
CREATE INDEX captures_by_session ON captures (session_id, agent);
