"""How long tests wait for what must come: long, because the machine may be busy with anything.

Only a failure waits so long. No test asserts on a clock; what must be quick is counted in CPU seconds of the
process (`time.process_time`), and generously.
"""

PATIENCE_S = 600.0
