"""The columns of exported posts."""

from floodmark.sources.columns import ExportColumn

COLUMNS = (
    ExportColumn("id", "int", "Number of the message in its channel."),
    ExportColumn("channel_id", "int", "Number of the channel, without -100."),
    ExportColumn("channel", "text", "Its username when the post was collected."),
    ExportColumn("date", "time", "When it was posted."),
    ExportColumn("kind", "text", "`message` or `service`."),
    ExportColumn("text", "text", "The text."),
    ExportColumn("views", "int", "Views when it was collected."),
    ExportColumn("forwards", "int", "Forwards when it was collected."),
    ExportColumn("replies", "int", "Replies when it was collected."),
    ExportColumn("reactions", "json", "Reactions with their counts when it was collected."),
    ExportColumn("edit_date", "time", "When it was last edited."),
    ExportColumn("hidden_edit_date", "time", "When it was last changed without an edit, for example by a reaction."),
    ExportColumn("author", "text", "The signature of its author."),
    ExportColumn("from", "json", "The user or channel that posted it."),
    ExportColumn("media_type", "text", "The type of its media, such as `photo`.", "media.type"),
    ExportColumn("media", "json", "The description of its media."),
    ExportColumn("entities", "json", "Links, mentions and formatting of the text; offsets in UTF-16 units."),
    ExportColumn("reply_to", "json", "The message that it replies to."),
    ExportColumn("forwarded_from", "json", "The message that was forwarded."),
    ExportColumn("grouped_id", "text", "The same for all posts of one album."),
    ExportColumn("via_bot", "text", "Number of the bot that sent it."),
    ExportColumn("pinned", "bool", "Whether it is pinned; empty if it is not."),
    ExportColumn("silent", "bool", "Whether it was posted without a notification; empty if it was not."),
    ExportColumn("noforwards", "bool", "Whether it must not be forwarded; empty if it may."),
    ExportColumn("ttl_seconds", "int", "Seconds after which it deletes itself."),
    ExportColumn("action", "json", "What a service message is about."),
)
