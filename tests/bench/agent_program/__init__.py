"""The program of ``tests.bench.many_sessions`` that runs on an agent, in one archive with the collection's code."""
