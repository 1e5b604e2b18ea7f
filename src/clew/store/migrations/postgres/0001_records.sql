-- The records on a server: the tables of records.db, and what only many writers need. Plain SQL; texts sort by bytes.
CREATE TABLE threads (
    id TEXT COLLATE "C" PRIMARY KEY,
    revision BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    body BYTEA NOT NULL
);

CREATE TABLE strands (
    id TEXT COLLATE "C" PRIMARY KEY,
    thread TEXT COLLATE "C" NOT NULL,
    agent TEXT COLLATE "C" NOT NULL,
    native_id BYTEA NOT NULL,
    revision BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    body BYTEA NOT NULL,
    scope BYTEA,
    fence BIGINT NOT NULL DEFAULT 0,
    claim TEXT COLLATE "C"
);
CREATE INDEX strands_by_thread ON strands (thread);
CREATE INDEX strands_by_native_id ON strands (agent, native_id);
CREATE INDEX strands_by_claim ON strands (claim) WHERE claim IS NOT NULL;

CREATE TABLE strand_roots (
    strand TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    root BYTEA NOT NULL,
    PRIMARY KEY (strand, number)
);
CREATE INDEX strand_roots_by_root ON strand_roots (root);

-- A row for each root that a transaction looked at or added: its lock makes two adoptions of one conversation meet.
CREATE TABLE held_roots (
    root BYTEA PRIMARY KEY
);

CREATE TABLE edges (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind TEXT COLLATE "C" NOT NULL,
    from_strand TEXT COLLATE "C",
    to_strand TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    body BYTEA NOT NULL
);
CREATE INDEX edges_by_from ON edges (from_strand);
CREATE INDEX edges_by_to ON edges (to_strand);

CREATE TABLE store (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    store_id TEXT COLLATE "C" NOT NULL,
    grants BIGINT NOT NULL,
    highest_fence BIGINT NOT NULL,
    fence_floor BIGINT NOT NULL
);
INSERT INTO store VALUES (1, replace(CAST(gen_random_uuid() AS TEXT), '-', ''), 0, 0, 0);

CREATE TABLE operations (
    key BYTEA PRIMARY KEY,
    caller BYTEA NOT NULL,
    fingerprint TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    session TEXT COLLATE "C",
    expires_ms BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    body BYTEA NOT NULL
);
CREATE INDEX operations_by_caller ON operations (caller);
CREATE INDEX operations_by_session ON operations (session);

CREATE TABLE journals (
    name TEXT COLLATE "C" PRIMARY KEY,
    strand TEXT COLLATE "C" NOT NULL,
    epoch BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    identity BYTEA NOT NULL
);
CREATE INDEX journals_by_strand ON journals (strand);

CREATE TABLE journal_rows (
    journal TEXT COLLATE "C" NOT NULL,
    epoch BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    time_ms BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (journal, epoch, sequence)
);
