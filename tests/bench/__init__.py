"""The benchmark: what sessions cost, beside what the same containers cost otherwise. Never a test with a limit."""
