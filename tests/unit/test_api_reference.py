"""The API reference of the dashboard: everything in the OpenAPI document is in it, and nothing in it is markup."""

import json
import shlex

import pytest
from markupsafe import Markup

from floodmark.api.app import create_app
from floodmark.dashboard.reference import Reference, build_reference, curl_line, matching, prose, type_of

pytestmark = pytest.mark.spec("B10")


@pytest.fixture(scope="module")
def reference() -> Reference:
    return build_reference(create_app(None).openapi(), {"add_job": "admin", "show_health": None})


def test_every_operation_and_object_of_the_document_is_there(reference: Reference) -> None:
    document = create_app(None).openapi()
    wanted = {one["operationId"] for methods in document["paths"].values() for one in methods.values()}
    found = [one.name for group in reference.groups for one in group.operations]
    assert sorted(found) == sorted(wanted)
    objects = {one.name for one in reference.objects}
    operations = [one for group in reference.groups for one in group.operations]
    fields = [field for one in reference.objects for field in one.fields]
    fields += [field for one in operations for field in one.parameters]
    links = {link for field in fields for link in field.type.links}
    links |= {link for one in operations for response in one.responses for link in response.type.links}
    without_fields = {name for name, schema in document["components"]["schemas"].items() if "properties" not in schema}
    assert links <= objects | without_fields
    assert all(one.summary and one.description for one in operations)


def test_every_command_can_be_pasted_into_a_shell(reference: Reference) -> None:
    for group in reference.groups:
        for one in group.operations:
            words = shlex.split(curl_line(one, "https://example.org/monitor"))
            assert words[0] == "curl"
            [url] = [word for word in words if word.startswith("https://example.org/monitor/")]
            assert "{" not in url
            assert ("-X" in words) == (one.method != "GET")
            assert any(word.startswith("Authorization: Bearer") for word in words) == (one.name != "show_health")
            if "-d" in words:
                json.loads(words[words.index("-d") + 1])


def test_words_find_operations(reference: Reference) -> None:
    found = [one.name for group in matching(reference, "pause Job").groups for one in group.operations]
    assert "pause_job" in found
    assert len(found) < 10
    assert matching(reference, "no such words").groups == ()


def test_types_are_in_words() -> None:
    assert type_of({"anyOf": [{"type": "string"}, {"type": "null"}]}).text == "string or null"
    assert type_of({"type": "array", "items": {"$ref": "#/components/schemas/JobOut"}}).links == ("JobOut",)
    assert type_of({"enum": ["a", 1]}).text == '"a" | 1'
    assert type_of({"type": "object", "additionalProperties": {"type": "integer"}}).text == "object of integer"
    assert type_of({"type": "string", "format": "date-time"}).text == "string (date-time)"
    assert type_of({}).text == "any"


def test_descriptions_keep_their_form_and_nothing_else() -> None:
    shown = prose("A `<b>` and **bold** <i>.\n\n- one\n  goes on\n- `two`\n\nEnd")
    assert shown == Markup(
        "<p>A <code>&lt;b&gt;</code> and <b>bold</b> &lt;i&gt;.</p>"
        "<ul><li>one goes on</li><li><code>two</code></li></ul><p>End</p>"
    )
