"""External triggers: each delivery becomes executions of the jobs it concerns, once.

intake.py           finds the jobs that a delivery concerns, and their params
webhooks.py         HTTP: checks signatures, and which senders may come without one
redis_listeners.py  Redis channels and streams; only the leader listens
refusals.py         counts refused deliveries
"""
