-- Where the store lay when it last granted a fence: a copy lies elsewhere. NULL: not told yet.
ALTER TABLE store ADD COLUMN origin TEXT;
