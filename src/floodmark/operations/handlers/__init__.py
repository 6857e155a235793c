"""The operations on the store of this installation; one file for each file of declarations."""
