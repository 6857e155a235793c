"""The dashboard: pages that the server renders from the operations, kept live by a small script.

routes.py       the routes: pages, actions, sign-in, static files
page.py         how a page is declared, built and rendered
view.py         one request of a page: the caller, the operations, links
operations.py   the operations as a caller may use and see them
actions.py      every button: one route that carries out an operation from a form
signing_in.py   sign-in with a token, sign-out
rendering.py    Jinja2, its filters and the state of the page frame
charts.py       charts as SVG, pure; plots.py: charts over time with axes; cells.py: calendars and maps of squares
activity.py     the charts of the overview; freshness_cells.py: its freshness map; both pure
selection.py    a choice of collected items, as the address says it; downloads.py sends it as a file
item_content.py what an item is; post_text.py, report_content.py and differences.py: its content for people; all pure
regions.py      parts of a page that are not sent again to a page that has them
assets.py       style sheet and script, under names that change with their content
pages/          the pages, by subject
templates/      their templates; `frame.html` is the common frame, `parts.html` the macros
static/         one style sheet and one script, without third-party code

A page reads well without its script. With it, the page listens to the live feed, and when something happens it asks
for itself again and replaces the elements marked `data-live`.
"""
