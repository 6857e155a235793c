"""The columns of exported pages."""

from floodmark.sources.columns import ExportColumn

COLUMNS = (
    ExportColumn("url", "text", "The URL of the page."),
    ExportColumn("title", "text", "Its title."),
    ExportColumn("text", "text", "Its text, without navigation."),
    ExportColumn("description", "text", "Its description for search engines."),
    ExportColumn("language", "text", "Its language."),
    ExportColumn("author", "text", "Its author."),
    ExportColumn("published", "time", "When it was published, as the page says."),
    ExportColumn("modified", "time", "When it was modified, as the page says."),
    ExportColumn("open_graph", "json", "Its description for social networks."),
    ExportColumn("difference", "text", "What has changed since the previous revision, line by line."),
    ExportColumn("links", "texts", "The pages of the site and others that it links to."),
    ExportColumn("more_links", "int", "Number of links that are not listed."),
    ExportColumn("hash", "text", "Hash of title and text."),
    ExportColumn("fetched_at", "time", "When it was read."),
    ExportColumn("raw", "text", "Hash of its content as it was received, if that is stored."),
    ExportColumn("pages", "int", "Number of pages, of a PDF document."),
    ExportColumn("media_type", "text", "Its type, if it is not HTML."),
)
