"""The tables of Hermes 0.19.0 that hold sessions, for a place where it has never run.

What is here is the layout as any of its databases shows it: columns, their types, what may not be NULL, defaults. The
agent adds its other tables, its indexes and its full text search by itself when it opens the database, and indexes
what is there already.
"""

from __future__ import annotations

from collections.abc import Callable

VERSION = 22
"""The version of the layout that the agent notes in `schema_version`."""

_COUNTS = "integer = 0"

_SESSIONS = f"""
id text *; source text !; user_id text; session_key text; chat_id text; chat_type text; thread_id text;
display_name text; origin_json text; expiry_finalized {_COUNTS}; model text; model_config text; system_prompt text;
parent_session_id text > sessions; started_at real !; ended_at real; end_reason text; message_count {_COUNTS};
tool_call_count {_COUNTS}; input_tokens {_COUNTS}; output_tokens {_COUNTS}; cache_read_tokens {_COUNTS};
cache_write_tokens {_COUNTS}; reasoning_tokens {_COUNTS}; cwd text; git_branch text; git_repo_root text;
billing_provider text; billing_base_url text; billing_mode text; estimated_cost_usd real; actual_cost_usd real;
cost_status text; cost_source text; pricing_version text; title text; api_call_count {_COUNTS}; handoff_state text;
handoff_platform text; handoff_error text; compression_failure_cooldown_until real; compression_failure_error text;
compression_fallback_streak integer ! = 0; profile_name text; rewind_count integer ! = 0; archived integer ! = 0
"""
_MESSAGES = """
id integer * +; session_id text ! > sessions; role text !; content text; tool_call_id text; tool_calls text;
tool_name text; effect_disposition text; timestamp real !; token_count integer; finish_reason text; reasoning text;
reasoning_content text; reasoning_details text; codex_reasoning_items text; codex_message_items text;
platform_message_id text; observed integer = 0; active integer ! = 1; compacted integer ! = 0; api_content text
"""
_USAGE = """
session_id text ! ** > sessions; model text ! **; billing_provider text ! ** = ''; billing_base_url text ! ** = '';
billing_mode text ! ** = ''; task text ! ** = ''; api_call_count integer ! = 0; input_tokens integer ! = 0;
output_tokens integer ! = 0; cache_read_tokens integer ! = 0; cache_write_tokens integer ! = 0;
reasoning_tokens integer ! = 0; estimated_cost_usd real ! = 0; actual_cost_usd real ! = 0; cost_status text;
cost_source text; first_seen real; last_seen real
"""
_TABLES = {
    "schema_version": "version integer !",
    "sessions": _SESSIONS,
    "messages": _MESSAGES,
    "session_model_usage": _USAGE,
    "state_meta": "key text *; value text",
}
"""Each table's columns in order: name, type, then `*` primary key (`**` part of it), `+` counted, `!` not NULL, `=`
default, `>` refers to."""


def columns_of(table: str) -> tuple[str, ...]:
    """Returns the names of a table's columns in order."""
    return tuple(piece.split()[0] for piece in _TABLES[table].split(";"))


def _column(text: str) -> str:
    text, _, refers = (piece.strip() for piece in text.partition(">"))
    text, _, default = (piece.strip() for piece in text.partition("="))
    name, kind, *signs = text.split()
    words = [name, kind.upper()]
    words += ["PRIMARY KEY"] if "*" in signs else []
    words += ["AUTOINCREMENT"] if "+" in signs else []
    words += ["NOT NULL"] if "!" in signs else []
    words += [f"DEFAULT {default}"] if default else []
    words += [f"REFERENCES {refers}(id)" + " ON DELETE CASCADE" * ("**" in signs)] if refers else []
    return " ".join(words)


def lay_out(execute: Callable[..., object]) -> None:
    """Makes the tables in an empty database."""
    for table, text in _TABLES.items():
        pieces = text.split(";")
        joint = ", ".join(piece.split()[0] for piece in pieces if "**" in piece.split())
        lines = [*map(_column, pieces), *([f"PRIMARY KEY ({joint})"] if joint else [])]
        execute(f"CREATE TABLE {table} ({', '.join(lines)})")
    execute("INSERT INTO schema_version (version) VALUES (?)", (VERSION,))
