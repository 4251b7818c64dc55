#!/usr/bin/python3
"""A stage program: mail with a forbidden attachment goes to FORBIDDEN_STAGE, all other mail to NEXT_STAGE.

Runs as PROGRAM -c FILE worker and speaks the line protocol. Standard output belongs to the protocol.
"""
import configparser
import email
import json
import os
import sys

import psycopg2

OK, FAILED, DATA, IO, CONFIG = 0, 1, 65, 74, 78  # as in sysexits.h

# A row that is not running at this stage under this claim is somebody else's business.
LOAD = """
SELECT q.claims, q.headers, b.body, q.state -> 'temporary_failures', q.received_at < now() - interval '120 h'
FROM pepsi.workqueue q LEFT JOIN pepsi.workqueue_body b ON b.body_id = q.body_id
WHERE q.workqueue_id = %(id)s AND q.claims = coalesce(%(claim)s, q.claims) AND q.status = 'running' AND q.stage = %(stage)s
"""

ADVANCE = """
UPDATE pepsi.workqueue
SET status = 'pending', stage = %(to)s,
    state = (state - '{strikes,temporary_failures,last_error}'::text[]) || %(merge)s::jsonb
WHERE workqueue_id = %(id)s AND claims = %(claim)s AND status = 'running'
"""

PAUSE = """
UPDATE pepsi.workqueue
SET status = 'paused', timeout = now() + %(minutes)s * interval '1 min', state = state || %(merge)s::jsonb
WHERE workqueue_id = %(id)s AND claims = %(claim)s AND status = 'running'
"""

FAIL = """
UPDATE pepsi.workqueue
SET status = 'failed', state = state || %(merge)s::jsonb
WHERE workqueue_id = %(id)s AND claims = %(claim)s AND status = 'running'
"""


def log(text):
    print(f"quarantine: {text}", file=sys.stderr, flush=True)


def say(line):
    print(line, flush=True)


def refuse(text):
    log(text)
    sys.exit(CONFIG)


def clean(text):
    """Text that jsonb takes: it holds neither NUL nor half a surrogate pair."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")[:2000]


def read_section(file, stage):
    parser = configparser.ConfigParser(
        interpolation=None, strict=False, allow_no_value=True, delimiters=("=",), comment_prefixes=("#", "%"))
    try:
        parser.read_file(open(file, encoding="utf-8"))
        options = parser[f"stage-{stage}"]
    except (OSError, UnicodeError, configparser.Error, KeyError) as error:
        refuse(f"{file}: {error}")
    for name in ("NEXT_STAGE", "FORBIDDEN_STAGE", "FORBIDDEN"):
        if not options.get(name):
            refuse(f"{file}: [stage-{stage}] {name} is missing")
    return parser.get("pepsi-postgres", "CONFIG", fallback="postgres:///pepsi"), options


def forbidden(message, endings):
    """The names of the attachments that have one of these endings."""
    names = [part.get_filename() or "" for part in email.message_from_bytes(message).walk()]
    return [clean(name) for name in names if name.lower().strip().endswith(endings)]


def put_off(cursor, row, error, failures, is_old):
    """The host could not do it: again in 1, 2, 4 ... 60 minutes, but not for ever."""
    merge = {"last_error": clean(repr(error))}
    if is_old:
        merge |= {"failed_stage": row["stage"], "failure_class": "retries-exhausted"}
        cursor.execute(FAIL, {**row, "merge": json.dumps(merge)})
        return FAILED
    failures = failures if isinstance(failures, int) else 0
    merge["temporary_failures"] = failures + 1
    cursor.execute(PAUSE, {**row, "minutes": min(60, 2 ** min(failures, 6)), "merge": json.dumps(merge)})
    return OK


def handle(cursor, options, row):
    """One message; the status that is its answer."""
    cursor.execute(LOAD, row)
    found = cursor.fetchone()
    if found is None:
        log(f"{row['id']}: not running here under that claim; nothing was changed")
        return FAILED if row["claim"] is None else OK
    row["claim"], headers, body, failures, is_old = found
    try:
        message = bytes(headers) + (b"" if body is None else b"\r\n" + bytes(body))
        names = forbidden(message, tuple(options["FORBIDDEN"].lower().split()))
        to = options["FORBIDDEN_STAGE" if names else "NEXT_STAGE"].lower()
        cursor.execute(ADVANCE, {**row, "to": to, "merge": json.dumps({"forbidden": names} if names else {})})
        return OK
    except psycopg2.OperationalError:
        raise  # the database's fault, not the message's
    except Exception as error:
        log(f"{row['id']}: {error!r}")
        return put_off(cursor, row, error, failures, is_old)


def main():
    if len(sys.argv) != 4 or sys.argv[1] != "-c" or sys.argv[3] != "worker":
        refuse("run me as: PROGRAM -c FILE worker")
    stage = os.environ.get("PEPSI_STAGE") or refuse("PEPSI_STAGE is not set")
    url, options = read_section(sys.argv[2], stage)
    try:
        database = psycopg2.connect(url, options="-c synchronous_commit=off")
        database.set_session(isolation_level="READ COMMITTED", autocommit=True)
    except psycopg2.OperationalError as error:
        log(error)
        sys.exit(IO)
    say("ready claims")
    for line in sys.stdin:
        if not line.endswith("\n"):
            log("the input ended within a line; nothing was done about it")
            sys.exit(DATA)
        words = line.split()
        row = {"id": int(words[0]), "claim": int(words[1]) if words[1:] else None, "stage": stage}
        try:
            status = handle(database.cursor(), options, row)
        except psycopg2.OperationalError as error:
            log(error)
            sys.exit(IO)  # all that is not answered is put off, and nobody is blamed
        say(status)


main()
