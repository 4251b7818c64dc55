-- Records a file as installed now. $1 text: its name; $2 text: its content. Returns its SHA-256. By the primary key.
INSERT INTO pepsi.schema_version (patch, checksum) VALUES ($1, encode(sha256(convert_to($2, 'UTF8')), 'hex'))
ON CONFLICT (patch) DO UPDATE SET checksum = excluded.checksum, installed_at = now()
RETURNING checksum
