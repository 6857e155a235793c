"""The pages of the dashboard, by subject. Each module has its pages in `PAGES`."""
