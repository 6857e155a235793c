"""Syncs schedules of another program: reads them over HTTP, compares them, and writes them as jobs.

    request.py   ->  format.py  ->  difference.py  ->  sync.py
    sends one        validates      plans the          applies them in
    request          the response   changes (pure)     one transaction

An invalid response changes nothing.
"""
