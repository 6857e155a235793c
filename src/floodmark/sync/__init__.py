"""Schedules that another program keeps: read over HTTP, compared, and written as jobs.

    fetching.py  ->  format.py  ->  difference.py  ->  sync.py
    one bounded      is it what     what would          does it, in one
    request          we expect?     change? (pure)      transaction

Nothing is changed by an answer that is not wholly understood.
"""
