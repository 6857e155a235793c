"""Evidence of what was fetched: WARC files and the raw content of revisions, in ARTIFACTS_DIR.

<ARTIFACTS_DIR>/warc/<stream>/<time>-<execution>-<number>.warc.gz   responses, one gzip member per record
<ARTIFACTS_DIR>/warc/<stream>/payloads.sqlite                        digests of stored payloads, for revisit records
<ARTIFACTS_DIR>/raw/<xx>/<sha256>.<type>                             the content of each revision, once
    <ARTIFACTS_DIR>/enclosures/<xx>/<sha256>.<type>                      files of feed entries, once
"""
