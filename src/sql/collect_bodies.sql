-- Deletes bodies that no row refers to (requirement K4). $1 integer: at most how many. By the primary key of workqueue_body
-- and workqueue_body_ref.
SELECT pepsi.workqueue_body_gc($1)
