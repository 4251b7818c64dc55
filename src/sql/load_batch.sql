-- Rows, whatever their status, neither headers nor body (Load::Metadata, B1). $1 bigint[]: ids. Returned in any order, without
-- those that are not there. By the primary keys; the size is taken from the lengths in the TOAST pointers.
SELECT q.workqueue_id, q.claims, q.status::text AS status, q.stage, q.state, q.mail_from, q.rcpt_to, q.header_from, q.subject,
       (extract(epoch FROM q.received_at) * 1000000)::bigint AS received_at_us,
       (extract(epoch FROM now()) * 1000000)::bigint AS now_us,
       octet_length(q.headers)::bigint + coalesce(2 + octet_length(b.body)::bigint, 0) AS size,
       NULL::bytea AS headers, NULL::bytea AS body
FROM pepsi.workqueue q
LEFT JOIN pepsi.workqueue_body b ON b.body_id = q.body_id
WHERE q.workqueue_id = ANY ($1)
