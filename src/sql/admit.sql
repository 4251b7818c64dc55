-- Stores one message. $1 text: sender; $2 text[]: recipients; $3 bytea: headers; $4 bytea: body or null; $5 jsonb: state;
-- $6 text: stage. One row: its id.
SELECT pepsi.workqueue_add($1, $2, $3, $4, $5, $6)
