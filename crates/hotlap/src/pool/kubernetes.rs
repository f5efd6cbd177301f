//! An Indexed Job of Kubernetes, as JSON, which kubectl reads as it does YAML; and a Dockerfile.
//!
//! An index is a shard. Each has retries of its own (`backoffLimitPerIndex`, stable since
//! Kubernetes 1.33), and hotlap's exit code decides whether it is worth another one. No two pods of
//! the job share a node, and each has whole CPUs: with requests that equal limits, the static
//! policy of the CPU manager gives it CPUs of its own.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::plan::Plan;
use crate::exit::Exit;

/// The name of the job's file.
pub const FILE: &str = "kubernetes.json";

/// The name of the image's file.
pub const DOCKERFILE: &str = "Dockerfile";

/// Where a pod has the folder of the plan.
const FOLDER: &str = "/pool";

/// How often an index is tried again.
const RETRIES: u32 = 3;

/// Seconds that a pod has to end its servers and remove what it wrote.
const GRACE_S: u32 = 60;

/// The job, as JSON. `image` has hotlap and the toolchains.
pub fn job(plan: &Plan, image: &str, cpus: usize, limit: Duration) -> String {
    let name = object_name(&plan.suite.file_stem().unwrap_or_default().to_string_lossy());
    let labels = json!({ "app.kubernetes.io/name": "hotlap", "app.kubernetes.io/instance": name });
    let spec = json!({
        "completionMode": "Indexed",
        "completions": plan.shards,
        "parallelism": plan.shards,
        "backoffLimitPerIndex": RETRIES,
        "maxFailedIndexes": plan.shards,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": { "rules": rules() },
        "template": {
            "metadata": { "labels": labels },
            "spec": pod(&labels, image, cpus, limit),
        },
    });
    let job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name, "labels": labels },
        "spec": spec,
    });
    format!("{job:#}\n")
}

fn pod(labels: &Value, image: &str, cpus: usize, limit: Duration) -> Value {
    let resources = json!({ "cpu": cpus.to_string(), "memory": format!("{}Gi", cpus.max(2) * 2) });
    json!({
        "restartPolicy": "Never",
        "activeDeadlineSeconds": limit.as_secs(),
        "terminationGracePeriodSeconds": GRACE_S,
        "affinity": { "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{
                "labelSelector": { "matchLabels": labels },
                "topologyKey": "kubernetes.io/hostname",
            }],
        } },
        "containers": [{
            "name": "hotlap",
            "image": image,
            "command": [
                "hotlap", "run", "--shard", format!("{FOLDER}/shard-$(JOB_COMPLETION_INDEX).toml"),
            ],
            "env": [{
                "name": "HOTLAP_NODE",
                "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } },
            }],
            "resources": { "requests": resources, "limits": resources },
            "volumeMounts": [{ "name": "pool", "mountPath": FOLDER }],
        }],
        "volumes": [{
            "name": "pool",
            "persistentVolumeClaim": { "claimName": "hotlap-pool" },
        }],
    })
}

/// What a pod's end means; the first rule that matches counts. What none matches is tried again:
/// an error of the environment, no valid lap, an interruption.
fn rules() -> Value {
    let exits = |action: &str, exit: Exit| {
        json!({
            "action": action,
            "onExitCodes": {
                "containerName": "hotlap", "operator": "In", "values": [exit as u8],
            },
        })
    };
    json!([
        // The command line, the suite or the plan is invalid: so it is for every index.
        exits("FailJob", Exit::Usage),
        // A server failed; the others were measured, and the result is in the folder.
        exits("FailIndex", Exit::ServerFailed),
        // A node was drained or a pod preempted: that is not a failure of the shard.
        {
            "action": "Ignore",
            "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }],
        },
    ])
}

/// A name as Kubernetes takes it (RFC 1123: lower case letters, digits and `-`), short enough that
/// the names of pods, which have a suffix, fit as well.
fn object_name(suite: &str) -> String {
    let plain = suite.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let short: String = format!("hotlap-{plain}").chars().take(40).collect();
    short.trim_end_matches('-').to_owned()
}

/// A Dockerfile for the image, to be built in a checkout of hotlap, with the toolchains of these
/// servers of the catalogue.
pub fn dockerfile(servers: &[&str]) -> String {
    let mut text =
        "# Written by `hotlap plan`. In a checkout of hotlap: docker build -f FILE -t IMAGE .
FROM rust:1-trixie AS build
WORKDIR /src
COPY . .
RUN cargo install --locked --path crates/hotlap --root /opt/hotlap

FROM debian:trixie
COPY --from=build /opt/hotlap/bin/hotlap /usr/local/bin/hotlap
# The C library's headers, for servers that are compiled; the rest is installed by hotlap.
RUN apt-get update && apt-get install -y --no-install-recommends \\
    ca-certificates curl gcc libc6-dev && rm -rf /var/lib/apt/lists/*
ENV HOTLAP_CACHE=/var/cache/hotlap
"
        .to_owned();
    for server in servers {
        let _ = writeln!(
            text,
            "RUN hotlap setup {server} --yes && hotlap check {server} --build-only --strict"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::division::Group;
    use super::*;

    fn written() -> Value {
        let group = Group { servers: vec!["a".to_owned()], shards: (0..7).collect() };
        let plan = Plan::new("My_Suite.toml".into(), 1, "a".to_owned(), vec![group]);
        let text = job(&plan, "registry/hotlap:1", 6, Duration::from_secs(1800));
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn an_index_is_a_shard_on_a_node_and_cpus_of_its_own() {
        let job = written();
        assert_eq!(job["metadata"]["name"], "hotlap-my-suite");
        let spec = &job["spec"];
        assert_eq!((&spec["completions"], &spec["completionMode"]), (&json!(7), &json!("Indexed")));
        let pod = &spec["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(container["command"][3], "/pool/shard-$(JOB_COMPLETION_INDEX).toml");
        assert_eq!(container["resources"]["requests"], container["resources"]["limits"]);
        assert_eq!(container["resources"]["limits"]["cpu"], "6");
        let apart = &pod["affinity"]["podAntiAffinity"];
        let apart = &apart["requiredDuringSchedulingIgnoredDuringExecution"][0];
        assert_eq!(apart["topologyKey"], "kubernetes.io/hostname");
        assert_eq!(apart["labelSelector"]["matchLabels"], spec["template"]["metadata"]["labels"]);
    }

    #[test]
    fn exit_codes_decide_what_is_tried_again() {
        let rules = written()["spec"]["podFailurePolicy"]["rules"].clone();
        let of = |code: u8| {
            let mut rules = rules.as_array().unwrap().iter();
            let rule = rules.find(|rule| rule["onExitCodes"]["values"] == json!([code]));
            rule.map(|rule| rule["action"].as_str().unwrap().to_owned())
        };
        assert_eq!(of(2).as_deref(), Some("FailJob"));
        assert_eq!(of(3).as_deref(), Some("FailIndex"));
        assert_eq!([1, 4, 130].map(of), [const { None }; 3], "these are tried again");
    }

    #[test]
    fn a_name_is_one_that_kubernetes_takes() {
        assert_eq!(object_name("a.b"), "hotlap-a-b");
        assert_eq!(object_name(&"x".repeat(90)).len(), 40);
        assert_eq!(object_name("é"), "hotlap");
    }

    #[test]
    fn the_image_has_the_toolchains_of_the_servers() {
        let text = dockerfile(&["go/net-http"]);
        assert!(text.ends_with(
            "RUN hotlap setup go/net-http --yes && hotlap check go/net-http --build-only --strict\n"
        ));
    }
}
