"""Watches: notify people of items that match, and of sources that are gone or late."""
