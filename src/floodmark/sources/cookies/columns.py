"""The columns of exported cookie scans."""

from floodmark.sources.columns import ExportColumn

COLUMNS = (
    ExportColumn("domain", "text", "The scanned domain."),
    ExportColumn("result", "text", "How the scan went: `scan complete`, or why a phase is incomplete."),
    ExportColumn("summary", "text", "The cookies of each phase in one sentence."),
    ExportColumn("scanned_at", "time", "When the scan began."),
    ExportColumn("seconds", "float", "How long it took."),
    ExportColumn("start", "text", "The URL that was opened first."),
    ExportColumn("final", "text", "The URL after redirects."),
    ExportColumn("managers", "texts", "The consent managers that the start page loaded."),
    ExportColumn("findings", "json", "The findings, with their evidence."),
    ExportColumn("phases", "json", "Banner, pages, cookies, storage and third-party hosts of each phase."),
    ExportColumn("notes", "texts", "Limits that were reached, and other remarks."),
    ExportColumn("third_party_cookies", "text", "Whether the browser allowed them."),
    ExportColumn("options", "json", "What the browser told the site about the visitor: locale, time zone, GPC."),
    ExportColumn("policy", "json", "The limits of lifetimes that the scan compared with."),
    ExportColumn("aliases", "json", "Hosts of the site that are aliases of another party's host."),
    ExportColumn("browser", "text", "The browser."),
    ExportColumn("user_agent", "text", "The user agent that it sent."),
    ExportColumn("is_recognisable", "bool", "Whether sites could recognise a program."),
    ExportColumn("manifest", "json", "The files of the report with their SHA-256."),
    ExportColumn("schema", "text", "The schema of the report."),
)
