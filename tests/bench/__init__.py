"""The benchmark: what a session costs, beside what the same containers cost otherwise. Never a test with a limit."""
