//! The command in a cluster and behind sentinels.

use std::process::Command;

use crate::support::{DRIVERS, bare, run};
use delayline_test_server::{Cluster, Sentinels, Server};
use serde_json::Value;

fn at(url: &str, driver: &str, args: &[&str]) -> Command {
    let mut command = bare(&["--driver", driver]);
    command.args(args).env("DELAYLINE_URL", url).env("DELAYLINE_QUEUE", "orders");
    command
}

#[test]
fn a_cluster_is_found_through_one_node() {
    let cluster = Cluster::builder().config("cluster-announce-hostname", "node.invalid").start();
    let url = cluster.url_of(&[&cluster.nodes()[2]]);
    let maps = cluster.nodes().iter().map(|node| {
        let port = node.port();
        format!("--map-address=node.invalid:{port}=127.0.0.1:{port}")
    });
    let maps: Vec<_> = maps.collect();
    for driver in DRIVERS {
        let with = |args: &[&str]| {
            let mut command = at(&url, driver, args);
            command.args(&maps);
            command
        };
        run(with(&["send", "--id", driver, "--payload", "x"])).code(0);
        let work = ["work", "--until-empty"];
        let handled = run(with(&work)).code(0);
        assert!(handled.stdout.contains(driver), "{}", handled.stdout);
        run(with(&["doctor"])).code(0);
    }
}

#[test]
fn sentinels_have_a_login_of_their_own_which_no_command_learns_unasked() {
    let sentinels = Sentinels::builder().password("pw").sentinel_password("hunter2").start();
    let url = sentinels.url().replace("://", "://:pw@");
    for driver in DRIVERS {
        let send = ["send", "--id", driver, "--payload", "x"];
        let refused = run(at(&url, driver, &send)).code(3);
        assert!(refused.stderr.contains("user name or password"), "{}", refused.stderr);
        let with = |args: &[&str]| {
            let mut command = at(&url, driver, args);
            command.env("DELAYLINE_SENTINEL_PASSWORD", "hunter2");
            command
        };
        run(with(&send)).code(0);
        let work = ["-vv", "work", "--until-empty", "--exec", "sh", "-c", "env >&2"];
        let ended = run(with(&work)).code(0);
        assert!(ended.stderr.contains("DELAYLINE_ID"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
        // Without an id: the other driver has sent one before.
        run(with(&["send", "--payload", "x"])).code(0);
        let work = ["work", "--until-empty", "--pass-url", "--exec", "sh", "-c", "env >&2"];
        let ended = run(with(&work)).code(0);
        assert!(ended.stderr.contains("DELAYLINE_SENTINEL_PASSWORD=hunter2"), "{}", ended.stderr);
    }
}

#[test]
fn urls_and_servers_that_do_not_match_are_told_apart() {
    let (cluster, server) = (Cluster::start(), Server::builder().tcp().start());
    for driver in DRIVERS {
        let told = |url: &str, words: &str| {
            let ended = run(at(url, driver, &["stats"])).code(2);
            assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
        };
        told(&cluster.nodes()[0].url(), "redis-cluster://");
        told(&server.url().replace("redis:", "redis-cluster:"), "redis://");
        let unused = ["stats", "--map-address", "a:1=b:2"];
        run(at(&server.url(), driver, &unused)).code(2);
        let malformed = ["stats", "--map-address", "a:1"];
        run(at(&cluster.url(), driver, &malformed)).code(2);
    }
}

/// What the doctor prints with `--json`, if it ends with this exit code.
fn examined(url: &str, driver: &str, code: i32) -> Vec<Value> {
    run(at(url, driver, &["doctor", "--json"])).code(code).lines()
}

/// The lines about servers or about sentinels.
fn about<'a>(lines: &'a [Value], what: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line.get(what).is_some()).collect()
}

/// The first verdict of a check on a server, or on all of them.
fn verdict<'a>(lines: &'a [Value], check: &str, server: &str) -> &'a str {
    let is_there = |line: &&Value| {
        let servers = line["servers"].as_array();
        servers.is_some_and(|them| them.is_empty() || them.iter().any(|it| it == server))
    };
    let is_it = |line: &&Value| line["check"] == check && is_there(line);
    let found = lines.iter().find(is_it).unwrap_or_else(|| panic!("{check} {server}: {lines:?}"));
    found["verdict"].as_str().unwrap()
}

fn address(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port())
}

#[test]
fn the_doctor_asks_every_node_of_a_cluster() {
    let cluster = Cluster::builder().replicas(1).config("min-replicas-to-write", "1").start();
    let (primary, replica) = (address(&cluster.nodes()[0]), address(&cluster.nodes()[3]));
    for driver in DRIVERS {
        let lines = examined(&cluster.url_of(&[&cluster.nodes()[4]]), driver, 0);
        let servers = about(&lines, "server");
        assert_eq!(servers.len(), 6, "{servers:?}");
        let of = |name: &str| *servers.iter().find(|line| line["server"] == *name).unwrap();
        assert_eq!(of(&primary)["role"], "primary");
        assert_eq!(of(&primary)["slots"], "0-5460");
        assert_eq!(of(&primary)["min_replicas_to_write"], 1);
        assert_eq!(of(&replica)["replica_of"], *primary);
        assert_eq!(of(&replica)["link"], "up");
        assert!(of(&replica)["bytes_behind"].is_u64());
        for check in ["version", "role", "eviction", "cluster state", "detection"] {
            assert_eq!(verdict(&lines, check, &replica), "good", "{check}");
        }
        for check in ["slots", "election", "replicas", "lag", "failover"] {
            assert_eq!(verdict(&lines, check, &primary), "good", "{check}");
        }
        assert_eq!(verdict(&lines, "min replicas", &primary), "beware", "none to spare");
    }
    let text = run(at(&cluster.url(), "redis", &["doctor"])).code(0).stdout;
    assert!(text.contains(&format!("replica of {primary}")), "{text}");
    assert!(text.contains("not yet replicated: about 10 s at most"), "{text}");
    // Problems of a replica count: it may be the primary tomorrow.
    cluster.nodes()[3].command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    cluster.nodes()[0].command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    let lines = examined(&cluster.url(), "redis", 1);
    assert_eq!(verdict(&lines, "eviction", &replica), "bad");
    assert_eq!(verdict(&lines, "eviction", &primary), "good");
    for check in ["min replicas", "failover"] {
        assert_eq!(verdict(&lines, check, &primary), "beware", "{check}");
    }
}

#[test]
fn the_doctor_reports_nodes_that_do_not_answer_or_may_not_be_asked() {
    let cluster = Cluster::start();
    let rules = |more: &str| {
        let words = format!("ACL SETUSER app on nopass ~* +@all -config -cluster|nodes {more}");
        let words: Vec<_> = words.split_whitespace().collect();
        cluster.nodes().iter().for_each(|node| drop(node.command(&words)));
    };
    let [first, second, third] = cluster.nodes() else { panic!("three nodes") };
    let url = cluster.url().replace("://", "://app@");
    for driver in DRIVERS {
        rules("+info");
        let lines = examined(&url, driver, 0);
        assert_eq!(about(&lines, "server").len(), 3);
        assert_eq!(verdict(&lines, "settings", &address(first)), "beware");
        rules("-info");
        let lines = examined(&url, driver, 0);
        assert_eq!(verdict(&lines, "server", &address(first)), "beware");
    }
    second.kill();
    for driver in DRIVERS {
        let lines = examined(&cluster.url(), driver, 1);
        assert_eq!(verdict(&lines, "server", &address(second)), "bad");
        assert_eq!(verdict(&lines, "version", &address(third)), "good");
    }
    let text = run(at(&cluster.url(), "redis", &["doctor"])).code(1).stdout;
    assert!(text.contains("cannot be reached") && text.contains(&address(second)), "{text}");
    let row = text.lines().find(|line| line.starts_with(&address(second))).unwrap();
    assert!(row.trim_end().ends_with(" -"), "its memory is not known: {row}");
    first.kill();
    third.kill();
    run(at(&cluster.url(), "redis", &["doctor"])).code(3);
}

#[test]
fn the_doctor_asks_sentinels_and_whom_they_watch_over() {
    let sentinels = Sentinels::builder().password("pw").sentinel_password("hunter2").start();
    let url = sentinels.url().replace("://", "://:pw@");
    let examined = |driver, code| {
        let mut command = at(&url, driver, &["doctor", "--json"]);
        command.env("DELAYLINE_SENTINEL_PASSWORD", "hunter2");
        run(command).code(code).lines()
    };
    let [primary, replica] = sentinels.servers() else { panic!("two servers") };
    for driver in DRIVERS {
        let lines = examined(driver, 0);
        let servers = about(&lines, "server");
        assert_eq!(servers.len(), 2, "{servers:?}");
        assert_eq!(servers[1]["replica_of"], *address(primary));
        let told = about(&lines, "sentinel");
        assert_eq!(told.len(), 3);
        for sentinel in told {
            assert_eq!(sentinel["primary"], *address(primary));
            assert_eq!((&sentinel["quorum"], &sentinel["others"]), (&2.into(), &2.into()));
            assert_eq!(sentinel["down_after_ms"], 1_000);
        }
        for check in ["sentinels", "primary", "replicas", "role"] {
            assert_eq!(verdict(&lines, check, &address(primary)), "good", "{check}");
        }
        assert_eq!(verdict(&lines, "failover", &address(primary)), "beware");
    }
    let [first, second, third] = sentinels.sentinels() else { panic!("three sentinels") };
    replica.kill();
    first.kill();
    for driver in DRIVERS {
        let lines = examined(driver, 0);
        assert_eq!(verdict(&lines, "server", &address(replica)), "beware");
        assert_eq!(verdict(&lines, "sentinels", &address(first)), "beware");
    }
    second.kill();
    let lines = examined("redis", 1);
    assert_eq!(verdict(&lines, "sentinels", &address(third)), "bad", "one is too few");
}

#[test]
fn the_doctor_asks_the_replica_of_a_single_server() {
    let primary = Server::builder().tcp().config("min-replicas-to-write", "2").start();
    let of = format!("127.0.0.1 {}", primary.port());
    let replica = Server::builder().tcp().config("replicaof", &of).start();
    let begin = std::time::Instant::now();
    while primary.online_replicas() == 0 {
        assert!(begin.elapsed().as_secs() < 60, "no replica");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for driver in DRIVERS {
        let lines = examined(&primary.url(), driver, 1);
        let servers = about(&lines, "server");
        assert_eq!(servers[1]["server"], *address(&replica));
        assert_eq!(servers[1]["replica_of"], *address(&primary));
        assert_eq!(verdict(&lines, "min replicas", &address(&primary)), "bad", "it refuses");
    }
    let lines = examined(&replica.url(), "redis", 1);
    let asked = about(&lines, "server")[0];
    assert_eq!(
        (&asked["replica_of"], &asked["bytes_behind"]),
        (&address(&primary).into(), &Value::Null)
    );
    primary.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    let lines = examined(&primary.url(), "redis", 0);
    assert_eq!(verdict(&lines, "min replicas", &address(&primary)), "beware");
    assert_eq!(verdict(&lines, "failover", &address(&primary)), "beware");
}

/// The queues that are listed.
fn queues(url: &str, driver: &str) -> Vec<String> {
    let text = run(at(url, driver, &["queues"])).code(0).stdout;
    text.lines().map(str::to_owned).collect()
}

fn create(url: &str, names: &[String]) {
    for name in names {
        run(at(url, "redis", &["--queue", name, "send", "--payload", "x"])).code(0);
    }
}

#[test]
fn queues_are_listed_while_a_primary_is_away() {
    let cluster = Cluster::start();
    let [first, second, third] = cluster.nodes() else { panic!("three nodes") };
    // The cluster would refuse calls to its other slots.
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let names: Vec<_> = (10..22).map(|number| format!("queue-{number}")).collect();
    create(&cluster.url(), &names);
    let is_on = |node, name: &&String| {
        std::ptr::eq::<Server>(cluster.owner(first, cluster.slot(name)), node)
    };
    let (lost, left): (Vec<_>, Vec<_>) = names.iter().partition(|name| is_on(second, name));
    assert!(!lost.is_empty() && !left.is_empty(), "{lost:?}, {left:?}");
    second.kill();
    let url = cluster.url_of(&[first, third]);
    for driver in DRIVERS {
        let ended = run(at(&url, driver, &["queues"])).code(1);
        assert_eq!(ended.stdout.lines().collect::<Vec<_>>(), left);
        assert!(ended.stderr.contains("incomplete"), "{}", ended.stderr);
        assert!(ended.stderr.contains(&address(second)), "{}", ended.stderr);
        assert!(!ended.stderr.contains(&address(third)), "{}", ended.stderr);
        let json = run(at(&url, driver, &["queues", "--json"])).code(1);
        assert_eq!(json.lines(), [serde_json::json!(left)]);
    }
}

#[test]
fn queues_behind_sentinels_are_listed() {
    let sentinels = Sentinels::start();
    let names = ["a", "b"].map(str::to_owned);
    create(&sentinels.url(), &names);
    for driver in DRIVERS {
        assert_eq!(queues(&sentinels.url(), driver), names);
    }
}

#[test]
fn queues_of_a_server_are_told_from_other_keys() {
    let server = Server::start();
    for driver in DRIVERS {
        assert_eq!(queues(&server.url(), driver), [""; 0]);
    }
    for number in 0..3_000 {
        server.command(&["SET", &format!("delayline:{number}:control"), "x"]);
    }
    for key in ["delayline:{a}:controls", "delayline:{a}b}:control", "delayline:{}:control"] {
        server.command(&["SET", key, "x"]);
    }
    let names = ["a.b-c", "orders"].map(str::to_owned);
    create(&server.url(), &names);
    for driver in DRIVERS {
        assert_eq!(queues(&server.url(), driver), names);
        let json = run(at(&server.url(), driver, &["queues", "--json"])).code(0);
        assert_eq!(json.lines(), [serde_json::json!(names)]);
    }
    server.command(&["ACL", "SETUSER", "u", "on", ">pw", "+@all", "-scan", "~*"]);
    let url = server.url_with_login("u", "pw");
    for driver in DRIVERS {
        let refused = run(at(&url, driver, &["queues"])).code(3);
        assert!(refused.stderr.contains("permission"), "{}", refused.stderr);
        let unreachable = run(at("redis://127.0.0.1:1", driver, &["queues"])).code(3);
        assert!(unreachable.stderr.contains("cannot be reached"), "{}", unreachable.stderr);
    }
    assert_eq!(queues("memory:", "redis"), [""; 0]);
}
