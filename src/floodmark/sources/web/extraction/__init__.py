"""What a crawl takes from a document: selected parts, main text, PDF text.

plan       which parts are taken, from the params of a job
selectors  selectors in CSS, XPath and JSONPath
values     typed values of fields
rows       an item for each match of a selector
article    main text by trafilatura
pdf        text of PDF documents
documents  one document by its plan
process    runs all of this in a process with limits on time and memory
pool       the processes of a worker
"""
