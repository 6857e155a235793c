"""Triggers from outside: what arrives becomes executions of the jobs it concerns, each delivery once.

intake.py      which jobs an arrival concerns, and with which params
webhooks.py    HTTP: signatures, and who may come without one
listening.py   Redis: channels and streams, heard by the leader
refusals.py    counts of deliveries that were not taken
"""
