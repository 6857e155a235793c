"""Outgoing requests: no private addresses, limits on time and size, and a polite rate per domain.

    polite.py        ->  client.py   ->  aiohttp_client.py  ->  connector.py  ->  guard.py
    rate limits,         redirects       one request,           DNS and           is this address
    circuit breakers                     decompression          sockets           allowed? (pure)

`proxy.py` applies the same rules to a browser's connections.
"""
