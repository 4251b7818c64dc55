-- Adds to the statistics (requirement K1). $1 text[]: stages, and of each $2 bigint[]: messages, $3 bigint[]: microseconds,
-- $4 bigint[]: timeouts, $5 bigint[]: crashes; $6 bigint: stages executed; $7 bigint: messages failed; $8 bigint:
-- serialization failures; $9 bigint[]: ids answered, of which those that are gone were finished; $10 bigint: messages at
-- stages without a section, which replaces the former figure. By primary keys.
WITH added AS (
    INSERT INTO pepsi.stage_stats AS s (stage, messages, processing_us, timeouts, crashes)
    SELECT stage, sum(messages), sum(processing_us), sum(timeouts), sum(crashes)
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
        AS delta (stage, messages, processing_us, timeouts, crashes)
    GROUP BY stage
    ON CONFLICT (stage) DO UPDATE
    SET messages = s.messages + excluded.messages,
        processing_us = s.processing_us + excluded.processing_us,
        timeouts = s.timeouts + excluded.timeouts,
        crashes = s.crashes + excluded.crashes
)
INSERT INTO pepsi.dispatch_stats AS d (stages_executed, messages_finished, messages_failed, serialization_failures, unserved)
SELECT $6::bigint, count(DISTINCT answered.id), $7::bigint, $8::bigint, $10::bigint
FROM unnest($9::bigint[]) AS answered (id)
WHERE NOT EXISTS (SELECT FROM pepsi.workqueue q WHERE q.workqueue_id = answered.id)
ON CONFLICT (only_row) DO UPDATE
SET stages_executed = d.stages_executed + excluded.stages_executed,
    messages_finished = d.messages_finished + excluded.messages_finished,
    messages_failed = d.messages_failed + excluded.messages_failed,
    serialization_failures = d.serialization_failures + excluded.serialization_failures,
    unserved = excluded.unserved
