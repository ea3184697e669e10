"""The HTTP/1.1 server of the admin API: bounded connections, bytes and times around h11."""
