"""The services for sources, sinks and notification channels, both built-in and from other packages."""
