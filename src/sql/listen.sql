-- The channels of requirement W1.
LISTEN workqueue;
LISTEN config_changed;
LISTEN telemetry_changed
