-- What listing found out about session files. Derived: this file may be deleted at any time.
CREATE TABLE files (
    agent TEXT NOT NULL,
    path BLOB NOT NULL,
    mtime_ns INTEGER NOT NULL,
    size INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (agent, path)
) STRICT, WITHOUT ROWID;
