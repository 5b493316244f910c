"""Validates rendered manifests, from the standard input, against the published schemas.

Unknown fields are errors. `cargo xtask prove deployment` runs it.
"""

import sys

import kubernetes_validate
import yaml
from cloudcoil.models.keda import v1alpha1 as keda

VERSION = "1.32"


def check_keda(resource):
    model = getattr(keda, resource["kind"]).model_validate(resource)
    known = model.model_dump(by_alias=True, exclude_unset=True, mode="json")
    if known != resource:
        sys.exit(f"{resource['kind']}: a field is unknown or has another form:\n{resource}\n{known}")


def check_container(name, container):
    if any("://" in arg and "@" in arg for arg in container["args"]) or "--url" in container["args"]:
        sys.exit(f"{name}: a secret is in the arguments")
    url = next(env for env in container["env"] if env["name"] == "DELAYLINE_URL")
    if "secretKeyRef" not in url["valueFrom"]:
        sys.exit(f"{name}: the URL, which may hold a password, comes from no secret")
    if not container["securityContext"]["readOnlyRootFilesystem"]:
        sys.exit(f"{name}: its file system can be written")


checked = []
for resource in yaml.safe_load_all(sys.stdin):
    if resource["apiVersion"].startswith("keda.sh/"):
        check_keda(resource)
    else:
        kubernetes_validate.validate(resource, VERSION, strict=True)
    if resource["kind"] == "Deployment":
        for container in resource["spec"]["template"]["spec"]["containers"]:
            check_container(resource["metadata"]["name"], container)
    checked.append(f"{resource['kind']} {resource['metadata']['name']}")
print("\n".join(sorted(checked)))
