"""The primes of the key exchange and of passwords."""

# The prime that Telegram publishes for both (https://core.telegram.org/mtproto/auth_key); clients know that it is safe
# and would need ages to find out about another one.
PRIME_BYTES = bytes.fromhex(
    "c71caeb9c6b1c9048e6c522f70f13f73980d40238e3e21c14934d037563d930f48198a0aa7c14058229493d22530f4db"
    "fa336f6e0ac925139543aed44cce7c3720fd51f69458705ac68cd4fe6b6b13abdc9746512969328454f18faf8c595f64"
    "2477fe96bb2a941d5bcd1d4ac8cc49880708fa9b378e3c4f3a9060bee67cf9a4a4a695811051907e162753b56b0f6b41"
    "0dba74d8a84b2a14b3144e0ef1284754fd17ed950d5965b4b9dd46582db1178d169c6bc465b0d6ff9ca3928fef5b9ae4"
    "e418fc15e83ebea0f87fa9ff5eed70050ded2849f47bf959d956850ce929851f0d8115f635b105ee2e4e15d04b2454bf"
    "6f4fadf034b10403119cd8e3b92fcc5b"
)
PRIME = int.from_bytes(PRIME_BYTES, "big")
G = 3
