"""The compose file is one, names nothing that is not there, and lets nobody in who was not asked."""

import json
import shutil
import stat
import subprocess
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml

from deploying import checked, commands, compose, image_environ, services, stages
from floodmark.model.durations import parse_every
from floodmark.settings import Settings, keys
from watching import DEPLOY

OURS = {name: service for name, service in services().items() if service.get("image") == "floodmark"}
ROLES = {"api": "port", "scheduler": "scheduler_port", "worker": "worker_port"}
ONCE = {"migrate", "metrics-token"}


def test_it_is_a_compose_file() -> None:
    text = (files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json").read_text("utf-8")
    schema = json.loads(text)
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert [f"{error.json_path}: {error.message}" for error in validator.iter_errors(compose())] == []


def test_what_the_services_are_told_are_settings_and_secrets_are_made(secrets: Path, tmp_path: Path) -> None:
    shutil.copy(secrets / "floodmark.env", tmp_path / ".env")
    for service in OURS.values():
        environ = {key: value for key, value in image_environ().items() if key in keys()} | service["environment"]
        settings = checked(environ, tmp_path)
        database, redis = urlsplit(settings.database_url), urlsplit(settings.redis_url or "")
        assert (database.hostname, redis.hostname) == ("postgres", "valkey")
        assert database.password == (secrets / "postgres_password").read_text().strip()
        assert database.username == services()["postgres"]["environment"]["POSTGRES_USER"]
        assert database.path == f"/{services()['postgres']['environment']['POSTGRES_DB']}"
        assert settings.floodmark_secret_key is not None
        assert urlsplit(settings.pushgateway_url or "").hostname in services()
        assert parse_every(service["stop_grace_period"]) >= settings.shutdown_grace + timedelta(seconds=5)
        [env] = service["secrets"]
        assert env["target"] == f"{stages()['runtime'].all_of('WORKDIR')[0]}/.env"


def test_secrets_are_not_shown_to_others_and_never_made_anew(secrets: Path) -> None:
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    make_secrets(secrets.parent)
    assert {path.name: path.read_text() for path in secrets.iterdir()} == before
    assert len(set(before.values())) == len(before)
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    # Compose binds them as they are, into containers of other users.
    assert all(path.stat().st_mode & stat.S_IROTH for path in secrets.iterdir())
    assert {Path(secret["file"]).name for secret in compose()["secrets"].values()} == set(before)


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deploy")
    shutil.copy(DEPLOY / "secrets.sh", folder)
    make_secrets(folder)
    return folder / "secrets"


def make_secrets(folder: Path) -> None:
    subprocess.run(["sh", folder / "secrets.sh"], check=True, stdout=subprocess.DEVNULL)


def test_git_and_the_builder_never_see_the_secrets() -> None:
    assert "/secrets/" in (DEPLOY / ".gitignore").read_text("utf-8").split()
    ignored = (DEPLOY.parent / ".dockerignore").read_text("utf-8")
    assert "!deploy\n" not in ignored
    assert "secrets" not in ignored.partition("*\n")[2]


def test_ports_are_published_on_this_machine_only() -> None:
    published = {name: service["ports"] for name, service in services().items() if "ports" in service}
    assert set(published) == {"api", "prometheus", "alertmanager", "grafana"}
    for ports in published.values():
        assert all(port.startswith("127.0.0.1:") for port in ports)
    api = Settings.model_fields["port"].default
    assert published["api"] == [f"127.0.0.1:{api}:{api}"]


def test_database_and_queue_are_reached_by_floodmark_alone() -> None:
    inside = {name for name, service in services().items() if "store" in service["networks"]}
    assert inside == {"postgres", "valkey", *OURS}
    assert compose()["networks"]["store"]["internal"] is True
    assert services()["postgres"]["networks"] == services()["valkey"]["networks"] == ["store"]


def test_what_is_named_is_there() -> None:
    for service in services().values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith("./") else source in compose()["volumes"]
        for secret in service.get("secrets", ()):
            assert (secret if isinstance(secret, str) else secret["source"]) in compose()["secrets"]
        assert set(service["networks"]) <= set(compose()["networks"])
    for service in OURS.values():
        build = service["build"]
        assert (DEPLOY / build["context"] / build["dockerfile"]).samefile(DEPLOY / "Dockerfile")
        assert build["target"] == list(stages())[-1]


def test_commands_can_be_typed() -> None:
    told = {name: service["command"][0] for name, service in OURS.items() if "entrypoint" not in service}
    assert set(told.values()) <= commands()
    assert {name: told[name] for name in ROLES} == {name: name for name in ROLES}
    assert OURS["migrate"]["command"] == ["migrate", "--yes"]
    assert {"tokens add", "tokens revoke"} <= commands()


def test_everything_waits_for_what_it_needs() -> None:
    for name, service in services().items():
        for other, wait in service.get("depends_on", {}).items():
            expected = "service_completed_successfully" if other in ONCE else "service_healthy"
            assert wait["condition"] == expected, f"{name} waits for {other}"
    for role in ROLES:
        assert {"migrate", "postgres", "valkey"} <= set(services()[role]["depends_on"])
    # Without a token it would not start on an address that others can reach.
    assert "metrics-token" in services()["api"]["depends_on"]


def test_everything_is_looked_after() -> None:
    for name, service in services().items():
        assert service["restart"] == ("no" if name in ONCE else "unless-stopped"), name
        assert service["logging"]["options"]["max-size"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        if name in ROLES:
            # Theirs is that of the image.
            assert "healthcheck" not in service
        else:
            assert service["healthcheck"].get("disable") is (True if name in ONCE else None), name
        if name != "postgres":
            assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"]), name


def test_prometheus_finds_every_process_and_may_look() -> None:
    scraped: dict[str, dict[str, Any]] = {}
    for job in configuration("prometheus/prometheus.yml")["scrape_configs"]:
        for found in job.get("dns_sd_configs", ()):
            assert found["type"] == "A"
            scraped |= {name: {"job": job, "port": found["port"]} for name in found["names"]}
    assert {name: found["port"] for name, found in scraped.items()} == {
        role: Settings.model_fields[key].default for role, key in ROLES.items()
    }
    token = Path(scraped["api"]["job"]["authorization"]["credentials_file"])
    assert f"metrics-token:{token.parent}:ro" in services()["prometheus"]["volumes"]
    assert f">{image_environ()['FLOODMARK_HOME']}/{token.name}" in OURS["metrics-token"]["command"][0]
    assert f"metrics-token:{image_environ()['FLOODMARK_HOME']}" in OURS["metrics-token"]["volumes"]


def test_those_who_watch_find_each_other() -> None:
    prometheus = configuration("prometheus/prometheus.yml")
    [alerting] = prometheus["alerting"]["alertmanagers"]
    assert alerting["static_configs"][0]["targets"] == ["alertmanager:9093"]
    [source] = configuration("grafana/provisioning/datasources/floodmark.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    [provider] = configuration("grafana/provisioning/dashboards/floodmark.yml")["providers"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in services()["grafana"]["volumes"]
    home = Path(services()["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (DEPLOY / "grafana" / "dashboards" / home.name).exists()
    assert str(home.parent) == provider["options"]["path"]
    named = {target["target"] for target in services()["alertmanager"]["secrets"]}
    text = (DEPLOY / "alertmanager" / "alertmanager.yml").read_text("utf-8")
    assert all(f"_file: {Path(*Path(path).parts[-2:])}" in text for path in named)


def configuration(path: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / path).read_text("utf-8"))
    return found
