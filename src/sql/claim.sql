-- The claim of all stages at once (requirements W3, W4, F7). All of it is the function's, in schema/fair.sql, where its
-- arguments are told and the indexes it rides on: arrays with one element a stage, with one a listed sender, the touched
-- ids, whether locked rows are passed over, and whether to look what else waits. The rows come oldest first.
SELECT kind, stage, workqueue_id, claims, sender_key, strikes
FROM pepsi.workqueue_claim_fair(
    $1::text[], $2::integer[], $3::integer[], $4::bigint[], $5::bigint[], $6::bigint[], $7::integer[], $8::text[], $9::bigint[],
    $10::integer[], $11::text[], $12::bigint[], $13::bigint[], $14::integer[], $15::bigint[], $16::boolean, $17::boolean)
ORDER BY workqueue_id NULLS LAST
