"""Every request to the outside: guarded against private addresses, bounded in every way, and polite.

    polite.py  ->  client.py  ->  aiohttp_client.py  ->  connector.py  ->  guard.py
    when may it    one request    bounded, and           names become      may this address
    be made?       and redirects  unpacked               sockets           be dialled? (pure)

`proxy.py` lets a browser dial by the same rules.
"""
