"""How a call to the outside is made: within its limits, paced, retried, and broken off when nobody answers."""
