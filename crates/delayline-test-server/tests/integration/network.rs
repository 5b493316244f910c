//! Servers in a network are cut off from each other, in one direction or in both.

use std::io::Write as _;
use std::process::Command;

use delayline_test_server::{Network, Reply, Server, until_blocking};

/// A primary and its replica in a network; `None` where the machine does not permit it.
fn pair(test: &str) -> Option<(Network, Server, Server)> {
    let network = match Network::start() {
        Ok(network) => network,
        Err(error) => {
            let cause = std::error::Error::source(&error);
            let line = format!("skipped: {test}: {error}: {cause:?}\n");
            // Past the capture of a test's output.
            std::io::stderr().write_all(line.as_bytes()).unwrap();
            return None;
        }
    };
    let primary = Server::builder().config("repl-diskless-sync-delay", "0");
    let primary = primary.network(&network).start();
    let address = primary.address();
    let replica = Server::builder().network(&network);
    let replica = replica.config("replicaof", &format!("{} {}", address.ip(), address.port()));
    let replica = replica.start();
    until_blocking("the link is up", || replica.info("replication", "master_link_status") == "up");
    // Until the replica's first confirmation, the primary sends it nothing. It needs none for a
    // write that is older than the link.
    primary.command(&["SET", "first", "v"]);
    assert_eq!(primary.command(&["WAIT", "1", "20000"]), Reply::Int(1));
    Some((network, primary, replica))
}

#[test]
fn a_one_way_cut_lets_the_other_direction_pass() {
    let Some((network, primary, replica)) = pair("a_one_way_cut_lets_the_other_direction_pass")
    else {
        return;
    };
    network.cut(&replica, &primary);
    primary.command(&["SET", "k", "v"]);
    assert_eq!(primary.command(&["WAIT", "1", "200"]), Reply::Int(0), "a confirmation passed");
    until_blocking("the replica has it", || replica.command(&["EXISTS", "k"]) == Reply::Int(1));
    network.heal();
    assert_eq!(primary.command(&["WAIT", "1", "20000"]), Reply::Int(1));
}

#[test]
fn networks_do_not_collide_and_leave_nothing_behind() {
    let name = "networks_do_not_collide_and_leave_nothing_behind";
    let (Some(one), Some(other)) = (pair(name), pair(name)) else { return };
    let mine = || {
        let list = Command::new("ip").args(["netns", "list"]).output().unwrap();
        let list = String::from_utf8(list.stdout).unwrap();
        let prefix = format!("delayline-{}-", std::process::id());
        list.lines().filter(|line| line.starts_with(&prefix)).count()
    };
    // Each has a hub and two servers. Other tests of this process may have some more.
    assert!(mine() >= 6);
    one.0.part(&[&one.1], &[&one.2]);
    for (_, primary, _) in [&one, &other] {
        primary.command(&["SET", "k", "v"]);
    }
    assert_eq!(other.1.command(&["WAIT", "1", "20000"]), Reply::Int(1));
    assert_eq!(one.2.command(&["EXISTS", "k"]), Reply::Int(0));
    let hub = format!("{:?}", one.0);
    let prefix = hub.split('"').nth(1).unwrap().to_owned();
    drop((one, other));
    let list = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(!list.contains(&prefix), "{list}");
}
