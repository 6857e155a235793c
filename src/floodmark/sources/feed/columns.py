"""The columns of exported feed entries."""

from floodmark.sources.columns import ExportColumn

COLUMNS = (
    ExportColumn("id", "text", "The id of the entry in its feed."),
    ExportColumn("link", "text", "The page of the entry."),
    ExportColumn("title", "text", "Its title."),
    ExportColumn("summary", "text", "Its summary."),
    ExportColumn("content", "text", "Its content."),
    ExportColumn("author", "text", "Its author."),
    ExportColumn("tags", "texts", "Its tags."),
    ExportColumn("published", "time", "When it was published."),
    ExportColumn("updated", "time", "When it was last updated."),
    ExportColumn("enclosures", "json", "Its files, such as the episode of a podcast."),
    ExportColumn("language", "text", "The language of the feed."),
    ExportColumn("feed", "text", "The title of the feed."),
    ExportColumn("fetched_at", "time", "When it was read."),
    ExportColumn("text", "text", "The text of its page, if that was read."),
)
