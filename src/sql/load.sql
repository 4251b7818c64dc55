-- Rows, whatever their status (requirements A1, B1, X1). $1 bigint[]: ids; $2 boolean: with headers (Load::Headers); $3 boolean:
-- with the body too (Load::Full). Returned in any order, without those that are not there. By the primary keys. The size is
-- taken from the lengths in the TOAST pointers: nothing large is read for it. settings: what is laid over the options of stages for
-- the message's correspondents (its sender where it is of local origin, else its recipients), each as scope, section, option and
-- value; null where nobody has any at all.
SELECT q.workqueue_id, q.claims, q.status::text AS status, q.stage, q.state, q.mail_from, q.rcpt_to, q.header_from, q.subject,
       (extract(epoch FROM q.received_at) * 1000000)::bigint AS received_at_us,
       (extract(epoch FROM now()) * 1000000)::bigint AS now_us,
       octet_length(q.headers)::bigint + coalesce(2 + octet_length(b.body)::bigint, 0) AS size,
       CASE WHEN $2::boolean THEN q.headers END AS headers,
       CASE WHEN $3::boolean THEN b.body END AS body,
       CASE WHEN EXISTS (SELECT FROM pepsi.settings) OR EXISTS (SELECT FROM pepsi.config_override WHERE scope < 'global') THEN (
           WITH correspondent AS MATERIALIZED (
               SELECT array_agg(lower(address COLLATE "C")) AS addresses,
                      array_agg('address:' || lower(address COLLATE "C"))
                          || array_agg('domain:' || lower(split_part(address, '@', -1) COLLATE "C")) AS scopes
               FROM unnest(CASE WHEN q.state -> 'local_origin' = 'true' THEN ARRAY[q.mail_from] ELSE q.rcpt_to END) AS c (address)
           )
           SELECT coalesce(jsonb_agg(jsonb_build_array(found.scope, found.section, found.option, found.value)), '[]')
           FROM (
               SELECT 'owner:' || s.address AS scope, 'stage-' || s.stage AS section, s.option, s.value
               FROM pepsi.settings s
               WHERE s.address = ANY ((SELECT addresses FROM correspondent)::text[])
               UNION ALL
               SELECT o.scope, o.section, o.option, o.value
               FROM pepsi.config_override o
               WHERE o.scope = ANY ((SELECT scopes FROM correspondent)::text[])
           ) AS found
       ) END AS settings
FROM pepsi.workqueue q
LEFT JOIN pepsi.workqueue_body b ON b.body_id = q.body_id
WHERE q.workqueue_id = ANY ($1)
