"""The tables that OpenCode 1.18.33 lays out, for a place where it has never run.

What is here is the layout as it can be seen in any of its databases: tables, columns, their types, what may not be
NULL, what refers to what, and the names under which the agent notes the steps that led there. With them in place it
takes the database as its own and brings it up to date from there.
"""

from __future__ import annotations

from collections.abc import Callable

_TIMES = "time_created integer!, time_updated integer!"
_OF_SESSION = "session_id > session"

_TABLES: dict[str, str] = {
    "workspace": "id*, type!, name! = '', branch, directory, extra, project_id! > project, time_used integer!",
    "data_migration": "name*, time_completed integer!",
    "account_state": "id integer*, active_account_id > account?, active_org_id",
    "account": f"id*, email!, url!, access_token!, refresh_token!, token_expiry integer, {_TIMES}",
    "control_account": (
        "email! **, url! **, access_token!, refresh_token!, token_expiry integer, active integer!, " + _TIMES
    ),
    "credential": f"id*, integration_id, label!, value!, connector_id, method_id, active integer, {_TIMES}",
    "event_sequence": "aggregate_id*, seq integer!, owner_id",
    "event": "id*, aggregate_id! > event_sequence.aggregate_id, seq integer!, type!, data!",
    "permission": f"id*, project_id! > project, action!, resource!, {_TIMES}",
    "project_directory": "project_id! ** > project, directory! **, type, strategy, time_created integer!",
    "project": (
        f"id*, worktree!, vcs, name, icon_url, icon_url_override, icon_color, {_TIMES}, time_initialized integer, "
        "sandboxes!, commands"
    ),
    "message": f"id*, session_id! > session, {_TIMES}, data!",
    "part": f"id*, message_id! > message, session_id!, {_TIMES}, data!",
    "session_context_epoch": "session_id* > session, baseline!, snapshot!, baseline_seq integer!",
    "session_input": (
        "id*, session_id! > session, prompt!, delivery!, admitted_seq integer!, promoted_seq integer, "
        "time_created integer!"
    ),
    "session_message": f"id*, session_id! > session, type!, seq integer!, {_TIMES}, data!",
    "session": (
        "id*, project_id! > project, workspace_id, parent_id, slug!, directory!, path, title!, version!, share_url, "
        "summary_additions integer, summary_deletions integer, summary_files integer, summary_diffs, metadata, "
        "cost real! = 0, tokens_input integer! = 0, tokens_output integer! = 0, tokens_reasoning integer! = 0, "
        "tokens_cache_read integer! = 0, tokens_cache_write integer! = 0, revert, permission, agent, model, "
        f"{_TIMES}, time_compacting integer, time_archived integer"
    ),
    "todo": f"session_id! ** > session, content!, status!, priority!, position integer! **, {_TIMES}",
    "session_share": f"session_id* > session, id!, secret!, url!, {_TIMES}",
    "migration": "id*, time_completed integer!",
}
"""Each table's columns in order. `*` primary key, `**` part of it, `!` not NULL, `=` default, `>` refers to; text
where no type is given."""

_INDEXES = (
    ("event_aggregate_seq", "event", "aggregate_id, seq", True),
    ("event_aggregate_type_seq", "event", "aggregate_id, type, seq", False),
    ("message_session_time_created_id", "message", "session_id, time_created, id", False),
    ("part_message_id_id", "part", "message_id, id", False),
    ("part_session", "part", "session_id", False),
    ("permission_project_action_resource", "permission", "project_id, action, resource", True),
    ("session_input_session_admitted_seq", "session_input", "session_id, admitted_seq", True),
    (
        "session_input_session_pending_delivery_seq",
        "session_input",
        "session_id, promoted_seq, delivery, admitted_seq",
        False,
    ),
    ("session_input_session_promoted_seq", "session_input", "session_id, promoted_seq", True),
    ("session_message_session_seq", "session_message", "session_id, seq", True),
    ("session_message_session_time_created_id", "session_message", "session_id, time_created, id", False),
    ("session_message_session_type_seq", "session_message", "session_id, type, seq", False),
    ("session_message_time_created", "session_message", "time_created", False),
    ("session_parent", "session", "parent_id", False),
    ("session_project", "session", "project_id", False),
    ("session_workspace", "session", "workspace_id", False),
    ("todo_session", "todo", "session_id", False),
)

STEPS = (
    "20260127222353_familiar_lady_ursula",
    "20260211171708_add_project_commands",
    "20260213144116_wakeful_the_professor",
    "20260225215848_workspace",
    "20260227213759_add_session_workspace_id",
    "20260228203230_blue_harpoon",
    "20260303231226_add_workspace_fields",
    "20260309230000_move_org_to_state",
    "20260312043431_session_message_cursor",
    "20260323234822_events",
    "20260410174513_workspace-name",
    "20260413175956_chief_energizer",
    "20260423070820_add_icon_url_override",
    "20260427172553_slow_nightmare",
    "20260428004200_add_session_path",
    "20260501142318_next_venus",
    "20260504145000_add_sync_owner",
    "20260507164347_add_workspace_time",
    "20260510033149_session_usage",
    "20260511000411_data_migration_state",
    "20260511173437_session-metadata",
    "20260601010001_normalize_storage_paths",
    "20260601202201_amazing_prowler",
    "20260602002951_lowly_union_jack",
    "20260602182828_add_project_directories",
    "20260603001617_session_message_projection_indexes",
    "20260603040000_session_message_projection_order",
    "20260603141458_session_input_inbox",
    "20260603160727_jittery_ezekiel_stane",
    "20260604172448_event_sourced_session_input",
    "20260605003541_add_session_context_snapshot",
    "20260605042240_add_context_epoch_agent",
    "20260611035744_credential",
    "20260611192811_lush_chimera",
    "20260612174303_project_dir_strategy",
    "20260622142730_simplify_session_context_epoch",
    "20260622170816_reset_v2_session_state",
    "20260622202450_simplify_session_input",
)
"""The steps that the agent notes as done, oldest first; the last is what 1.18.33 ends with."""


class Column:
    """One column as the short form above says it."""

    def __init__(self, text: str) -> None:
        text, _, self.refers = (piece.strip() for piece in text.partition(">"))
        text, _, self.default = (piece.strip() for piece in text.partition("="))
        words = text.split()
        self.joint = "**" in words
        words = [word for word in words if word != "**"]
        self.key, self.required = words[-1].endswith("*"), words[-1].endswith("!")
        self.name = words[0].rstrip("*!")
        self.type = words[1].rstrip("*!") if len(words) > 1 else "text"

    def sql(self) -> str:
        """Returns the column's definition."""
        pieces = [f"`{self.name}` {self.type}"]
        pieces += [f"DEFAULT {self.default}"] if self.default else []
        pieces += ["PRIMARY KEY"] if self.key else ["NOT NULL"] if self.required else []
        return " ".join(pieces)

    def reference(self, table: str) -> str:
        """Returns the rule on what the column refers to."""
        target, _, column = self.refers.rstrip("?").partition(".")
        column = column or "id"
        gone = "SET NULL" if self.refers.endswith("?") else "CASCADE"
        name = f"fk_{table}_{self.name}_{target}_{column}_fk"
        return f"CONSTRAINT `{name}` FOREIGN KEY (`{self.name}`) REFERENCES `{target}`(`{column}`) ON DELETE {gone}"


def columns_of(table: str) -> tuple[str, ...]:
    """Returns the names of a table's columns in order."""
    return tuple(Column(text).name for text in _TABLES[table].split(","))


def statements() -> list[str]:
    """Returns what lays out all tables and their indexes."""
    made: list[str] = []
    for table, text in _TABLES.items():
        columns = [Column(piece) for piece in text.split(",")]
        lines = [column.sql() for column in columns]
        joint = ", ".join(f"`{column.name}`" for column in columns if column.joint)
        lines += [f"CONSTRAINT `{table}_pk` PRIMARY KEY ({joint})"] if joint else []
        lines += [column.reference(table) for column in columns if column.refers]
        made.append(f"CREATE TABLE `{table}` ({', '.join(lines)})")
    for name, table, columns_text, unique in _INDEXES:
        names = ", ".join(f"`{column.strip()}`" for column in columns_text.split(","))
        made.append(f"CREATE {'UNIQUE ' if unique else ''}INDEX `{name}_idx` ON `{table}` ({names})")
    return made


def lay_out(execute: Callable[..., object], now_ms: int) -> None:
    """Makes all tables in an empty database and notes the steps as done."""
    for statement in statements():
        execute(statement)
    for step in STEPS:
        execute("INSERT INTO migration (id, time_completed) VALUES (?, ?)", (step, now_ms))
