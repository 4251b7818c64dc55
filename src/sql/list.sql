-- Rows for a person, oldest first. $1 text: stage, $2 text: status, $3 text: envelope sender, $4 text: one of the recipients,
-- each null for any, addresses in any case; $5 bigint: id, null for any; $6 bigint: at most how many. Walks the primary key,
-- or workqueue_pending and its like where the status is given.
SELECT q.workqueue_id, q.stage, q.status::text AS status, q.claims, q.mail_from, q.rcpt_to, q.header_from, q.subject,
       q.sender_key, q.state,
       octet_length(q.headers)::bigint + coalesce(2 + octet_length(b.body)::bigint, 0) AS size,
       to_char(q.received_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS received_at,
       floor(extract(epoch FROM now() - q.received_at))::bigint AS age_seconds,
       CASE WHEN q.status = 'paused' THEN ceil(extract(epoch FROM q.timeout - now()))::bigint END AS due_seconds
FROM pepsi.workqueue q
LEFT JOIN pepsi.workqueue_body b ON b.body_id = q.body_id
WHERE ($1::text IS NULL OR q.stage = $1)
  AND ($2::text IS NULL OR q.status = $2::pepsi.queue_status)
  AND ($3::text IS NULL OR lower(q.mail_from) = lower($3))
  AND ($4::text IS NULL OR EXISTS (SELECT FROM unnest(q.rcpt_to) AS r (address) WHERE lower(r.address) = lower($4)))
  AND ($5::bigint IS NULL OR q.workqueue_id = $5)
ORDER BY q.workqueue_id
LIMIT $6::bigint
