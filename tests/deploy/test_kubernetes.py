"""The manifests are what Kubernetes takes, say the same as the settings do, and fit together."""

import re
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from deploying import checked, commands, documents, image_environ, image_user, stages
from floodmark.observability.metrics.catalogue import CATALOGUE
from floodmark.settings import Settings, keys
from watching import DEPLOY, names_in

FOLDER = DEPLOY / "kubernetes"
COMPONENTS = FOLDER / "components"
# Examples, and what other programs are told: not applied.
APART = {FOLDER / "secret.example.yaml", COMPONENTS / "hpa" / "adapter.yaml"}
PORTS = {"api": "port", "scheduler": "scheduler_port", "worker": "worker_port"}
PUSHGATEWAY = "floodmark-pushgateway"
# PostgreSQL's max_connections less superuser_reserved_connections, by default.
CONNECTIONS = 97

MANIFESTS = sorted({*FOLDER.rglob("*.yaml")} - APART - {*FOLDER.rglob("kustomization.yaml")})
RESOURCES = [(path, document) for path in MANIFESTS for document in documents(path)]


def named(**properties: Any) -> dict[str, Any]:
    """The schema of an object with these properties, all of them, and no others."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


TEXT, COUNT = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 1}
TEXTS = {"type": "array", "items": TEXT, "minItems": 1}
OBJECT = {"type": "object"}
# What is not of Kubernetes itself has no schema in its releases; these are the parts that we use.
SCALED = named(
    scaleTargetRef=named(name=TEXT),
    minReplicaCount=COUNT,
    maxReplicaCount=COUNT,
    pollingInterval=COUNT,
    fallback=named(failureThreshold=COUNT, replicas=COUNT),
    advanced=named(horizontalPodAutoscalerConfig=named(behavior=OBJECT)),
    triggers={
        "type": "array",
        "minItems": 1,
        "items": named(
            type={"const": "prometheus"},
            metricType={"const": "AverageValue"},
            # KEDA takes nothing but text here.
            metadata=named(serverAddress=TEXT, query=TEXT, threshold=TEXT),
        ),
    },
)
ENDPOINT = named(port=TEXT, path=TEXT, interval=TEXT)
ENDPOINT["properties"]["honorLabels"] = {"const": True}
ENDPOINT["properties"]["metricRelabelings"] = {
    "type": "array",
    "items": named(sourceLabels=TEXTS, regex=TEXT, targetLabel=TEXT, replacement=TEXT),
}
ENDPOINT["properties"]["authorization"] = named(type=TEXT, credentials=named(name=TEXT, key=TEXT))
MONITORED = named(
    jobLabel=TEXT,
    selector=OBJECT,
    podMetricsEndpoints={"type": "array", "minItems": 1, "items": ENDPOINT},
)
OTHERS = {
    ("keda.sh/v1alpha1", "ScaledObject"): SCALED,
    ("monitoring.coreos.com/v1", "PodMonitor"): MONITORED,
}


def schema_of(resource: dict[str, Any]) -> dict[str, Any] | None:
    return OTHERS.get((resource["apiVersion"], resource["kind"]))


@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
def test_kubernetes_takes_the_manifests(version: str) -> None:
    own = [(path, resource) for path, resource in RESOURCES if schema_of(resource) is None]
    [secret] = documents(FOLDER / "secret.example.yaml")
    for path, resource in [*own, (FOLDER / "secret.example.yaml", secret)]:
        try:
            kubernetes_validate.validate(resource, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            pytest.fail(f"{path.name}, {resource['kind']}, {error.json_path}: {error.message}", pytrace=False)


def test_what_other_programs_take_has_the_right_shape() -> None:
    met = [(resource, schema) for _, resource in RESOURCES if (schema := schema_of(resource)) is not None]
    assert {(resource["apiVersion"], resource["kind"]) for resource, _ in met} == set(OTHERS)
    whole = {"apiVersion": TEXT, "kind": TEXT, "metadata": named(name=TEXT)}
    for resource, schema in met:
        jsonschema.validate(resource, named(**whole, spec=schema))


def test_every_manifest_is_applied_by_a_kustomization() -> None:
    applied: set[Path] = set()
    for path in FOLDER.rglob("kustomization.yaml"):
        [found] = documents(path)
        kind, version = ("Kustomization", "v1beta1") if path.parent == FOLDER else ("Component", "v1alpha1")
        assert (found["kind"], found["apiVersion"]) == (kind, f"kustomize.config.k8s.io/{version}")
        applied |= {path.parent / name for name in found["resources"]}
    assert applied == set(MANIFESTS)
    text = (FOLDER / "kustomization.yaml").read_text("utf-8")
    assert set(re.findall(r"^#  - (components/\w+) ", text, re.MULTILINE)) == {
        f"components/{path.name}" for path in COMPONENTS.iterdir()
    }


@pytest.mark.spec("F6")
def test_metrics_are_scraped_and_pushed(tmp_path: Path) -> None:
    found, [port] = settings(tmp_path), resources("Service")[PUSHGATEWAY]["spec"]["ports"]
    assert (found.metrics_mode, found.pushgateway_url) == ("both", f"http://{PUSHGATEWAY}:{port['port']}")


def test_what_is_not_secret_and_what_is_are_settings(tmp_path: Path) -> None:
    assert settings(tmp_path).database_url.startswith("postgresql://")
    assert settings(tmp_path).redis_url
    assert settings(tmp_path).floodmark_secret_key


def settings(folder: Path) -> Settings:
    """What a pod has: of the image, the ConfigMap, and the Secret."""
    [secret] = documents(FOLDER / "secret.example.yaml")
    (folder / ".env").write_text(secret["stringData"][".env"])
    image = {key: value for key, value in image_environ().items() if key in keys()}
    return checked(image | config(), folder)


def config() -> dict[str, str]:
    lines = (FOLDER / "settings.env").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@cache
def resources(kind: str) -> dict[str, dict[str, Any]]:
    """Those of a kind by name, with what the components bring."""
    return {found["metadata"]["name"]: found for _, found in RESOURCES if found["kind"] == kind}


def pods() -> dict[str, dict[str, Any]]:
    """The templates of all pods by component."""
    found = [resource["spec"]["template"] for kind in ("Deployment", "Job") for resource in resources(kind).values()]
    return {template["metadata"]["labels"]["app.kubernetes.io/component"]: template for template in found}


@pytest.mark.parametrize("role", [*PORTS, "migrate"])
def test_pods_are_as_restricted_as_their_namespace_asks(role: str) -> None:
    [namespace] = resources("Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    spec = pods()[role]["spec"]
    [container] = spec["containers"]
    whole, own = spec["securityContext"], container["securityContext"]
    assert whole["runAsNonRoot"]
    assert f"{whole['runAsUser']}:{whole['runAsGroup']}" == image_user()
    assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False
    # SCHEDULER_PORT=tcp://... of a Service called scheduler would be taken for the setting.
    assert spec["enableServiceLinks"] is False


@pytest.mark.parametrize("role", [*PORTS, "migrate"])
def test_pods_find_their_settings(role: str) -> None:
    spec = pods()[role]["spec"]
    [container] = spec["containers"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert set(mounts) == set(volumes)
    assert mounts["settings"]["mountPath"] == f"{stages()['runtime'].all_of('WORKDIR')[0]}/.env"
    [secret] = documents(FOLDER / "secret.example.yaml")
    assert volumes["settings"]["secret"]["secretName"] == secret["metadata"]["name"]
    assert mounts["settings"]["subPath"] in secret["stringData"]
    [kustomization] = documents(FOLDER / "kustomization.yaml")
    [generated] = kustomization["configMapGenerator"]
    assert container["envFrom"] == [{"configMapRef": {"name": generated["name"]}}]
    assert container["image"] == kustomization["images"][0]["name"]
    assert container["args"][0] in commands()
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert container["resources"]["limits"].keys() == {"memory"}


@pytest.mark.parametrize("role", PORTS)
def test_pods_are_asked_where_they_listen_and_left_in_peace_while_they_drain(role: str, tmp_path: Path) -> None:
    spec = pods()[role]["spec"]
    [container] = spec["containers"]
    assert container["args"] == [role]
    assert container["ports"] == [{"name": "http", "containerPort": Settings.model_fields[PORTS[role]].default}]
    # A database that is away must not restart a pod, not even while it starts; nor must one part of the fleet that is
    # away take the others off the network.
    for probe, path in (("startupProbe", "/health/live"), ("readinessProbe", "/health/ready")):
        assert container[probe]["httpGet"] == {"path": path, "port": "http"}
    [copy] = [value for value in stages()["runtime"].all_of("COPY") if "healthcheck" in value]
    assert container["livenessProbe"]["exec"]["command"] == [Path(copy.split()[-1]).name, "--alive"]
    stop = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
    drain = settings(tmp_path).shutdown_grace + timedelta(seconds=int(stop[1]))
    assert timedelta(seconds=spec["terminationGracePeriodSeconds"]) >= drain + timedelta(seconds=5)


def test_schedulers_stand_in_for_each_other() -> None:
    scheduler = resources("Deployment")["floodmark-scheduler"]["spec"]
    [term] = scheduler["template"]["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert scheduler["replicas"] == 2
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert term["podAffinityTerm"]["labelSelector"] == scheduler["selector"]
    budget = resources("PodDisruptionBudget")["floodmark-scheduler"]["spec"]
    assert budget == {"minAvailable": 1, "selector": scheduler["selector"]}


def test_selectors_select_something() -> None:
    labels = [pod["metadata"]["labels"] for pod in pods().values()]

    def selected(wanted: dict[str, str]) -> int:
        return sum(wanted.items() <= own.items() for own in labels)

    for deployment in resources("Deployment").values():
        assert selected(deployment["spec"]["selector"]["matchLabels"]) == 1
    for kind, key in (
        ("PodDisruptionBudget", "selector"),
        ("NetworkPolicy", "podSelector"),
        ("PodMonitor", "selector"),
    ):
        for resource in resources(kind).values():
            assert selected(resource["spec"][key]["matchLabels"]) >= 1
    service, gateway = resources("Service")["floodmark-api"], resources("Service")[PUSHGATEWAY]
    assert service["spec"]["selector"] == pods()["api"]["metadata"]["labels"]
    assert gateway["spec"]["selector"] == pods()["pushgateway"]["metadata"]["labels"]
    [ingress] = resources("Ingress").values()
    [rule] = ingress["spec"]["rules"]
    [path] = rule["http"]["paths"]
    [port] = service["spec"]["ports"]
    assert path["backend"]["service"] == {"name": service["metadata"]["name"], "port": {"name": port["name"]}}
    assert [rule["host"]] == ingress["spec"]["tls"][0]["hosts"]


def test_prometheus_calls_the_pods_what_alerts_and_dashboards_call_them() -> None:
    monitors = resources("PodMonitor")
    for monitor in monitors.values():
        for component, pod in pods().items():
            wanted = PUSHGATEWAY if component == "pushgateway" else "floodmark"
            assert pod["metadata"]["labels"][monitor["spec"]["jobLabel"]] == wanted
    [pushed] = monitors[PUSHGATEWAY]["spec"]["podMetricsEndpoints"]
    assert pushed["metricRelabelings"][0]["replacement"] == "floodmark-pushed", "floodmark:gone asks for it"
    [endpoint] = resources("PodMonitor")["floodmark-api"]["spec"]["podMetricsEndpoints"]
    assert "authorization" in endpoint


def test_workers_are_scaled_so_that_what_waits_and_runs_finds_a_slot(tmp_path: Path) -> None:
    scaled = resources("ScaledObject")["floodmark-worker"]["spec"]
    [trigger] = scaled["triggers"]
    autoscaler = resources("HorizontalPodAutoscaler")["floodmark-worker"]["spec"]
    [metric] = autoscaler["metrics"]
    [adapter] = yaml.safe_load((COMPONENTS / "hpa" / "adapter.yaml").read_text("utf-8"))["rules"]["external"]
    slots = str(settings(tmp_path).scheduler_worker_pool_size)
    assert trigger["metadata"]["threshold"] == metric["external"]["target"]["averageValue"] == slots
    assert metric["external"]["metric"]["name"] == adapter["name"]["as"]
    query = trigger["metadata"]["query"]
    assert adapter["metricsQuery"].replace("<<.LabelMatchers>>", 'namespace="floodmark"') == query
    assert names_in(query, frozenset(CATALOGUE)) == {
        "crawler_scheduler_queue_depth",
        "crawler_scheduler_jobs_currently_running",
    }
    [kustomization] = documents(FOLDER / "kustomization.yaml")
    assert f'namespace="{kustomization["namespace"]}"' in query
    for target in (scaled["scaleTargetRef"], autoscaler["scaleTargetRef"]):
        assert target["name"] in resources("Deployment")
    assert scaled["maxReplicaCount"] == autoscaler["maxReplicas"]


def test_the_database_has_room_for_all_pods(tmp_path: Path) -> None:
    ours = {name: found for name, found in resources("Deployment").items() if name != PUSHGATEWAY}
    counts = {name: deployment["spec"]["replicas"] for name, deployment in ours.items()}
    counts["floodmark-worker"] = resources("ScaledObject")["floodmark-worker"]["spec"]["maxReplicaCount"]
    surging = sum(found["spec"]["strategy"]["rollingUpdate"]["maxSurge"] for found in ours.values())
    # One connection more for each, to listen.
    assert (sum(counts.values()) + surging) * (settings(tmp_path).database_pool_max + 1) <= CONNECTIONS
