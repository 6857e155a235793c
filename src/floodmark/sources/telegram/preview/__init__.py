"""Read public channels without an account, through their web preview: t.me/s/<name>.

`client` requests pages politely, `pages` finds the posts on a page, `texts` and `media` read their parts, `posts` makes
items of them, `sameness` says whether a post is one that is stored already, and `reading` is one run over one channel.
"""
