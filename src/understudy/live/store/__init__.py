"""What the service keeps: studies, decisions and tokens, in SQLite or PostgreSQL."""
