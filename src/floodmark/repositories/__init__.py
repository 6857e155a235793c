"""Repositories: one per table of the core. People and programs read and change tables through them.

The steps of the protocol (fire, lease, keep, settle) are in `store`.
"""
