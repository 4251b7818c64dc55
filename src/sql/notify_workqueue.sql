-- Wakes the dispatcher: a notification without a payload.
SELECT pg_notify('workqueue', '')
