"""Reports over the cookie scans of all domains, as files: HTML, PDF, XLSX and CSV."""
