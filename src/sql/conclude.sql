-- A claimed row goes its way and leaves rows beside it (see workqueue_conclude in procedures.sql). $1 bigint: id; $2 bigint: claim;
-- $3 text: its new status, or finished; $4 text: its new stage, null to stay; $5 bigint: microseconds until it is due, if it is
-- paused; $6 jsonb: merged into the state; $7 text[]: recipients, null where they are as they were; $8 jsonb: groups;
-- $9 jsonb: messages of their own, $10 bytea[] and $11 bytea[] their headers and bodies. Rides on workqueue_running.
SELECT pepsi.workqueue_conclude($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) AS is_ours
