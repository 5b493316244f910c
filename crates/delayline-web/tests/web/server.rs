//! The page about the servers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use delayline::Connect;
use delayline_test_server::{Cluster, Reply, Sentinels, Server};
use delayline_web::{Access, Dashboard, Role, Router};

use crate::hostile::inert;
use crate::support::{Raws, get, open, orders, send};

/// A dashboard of one queue that knows the queue's server.
async fn site(url: &str, role: Role) -> (Raws, Router) {
    let connect = Connect::new(url).unwrap();
    let connection = connect.clone().connect().await.unwrap();
    let orders = open(&connection, "orders").await;
    let dashboard = Dashboard::new(Access::everyone(role)).queue(orders.clone()).server(connect);
    (orders, dashboard.router().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_examined_once_for_all_who_look() {
    let server = Server::builder().append_only("everysec").password("hunter2").start();
    let url = server.url_with_login("default", "hunter2");
    let (_, site) = site(&url, Role::Operator).await;
    let asked = || match server.command(&["INFO", "commandstats"]) {
        Reply::BulkString(bytes) => {
            let text = String::from_utf8(bytes).unwrap();
            let calls = text.split_once("cmdstat_config|get:calls=").unwrap().1;
            calls.split(',').next().unwrap().parse::<u32>().unwrap()
        }
        other => panic!("{other:?}"),
    };
    get(&site, "/queues").await.status(200).has("href=\"server\"");
    let pages = futures_util::future::join_all((0..9).map(|_| get(&site, "/server"))).await;
    for page in pages {
        let page = page.status(200).has("Nothing is wrong.").has("One server").has("noeviction");
        let page = page.has("append-only file, everysec").has("server?queue=orders");
        page.lacks("hunter2").lacks("As worker").has("check?queue=orders");
    }
    assert_eq!(asked(), 4, "the four settings, once");
    let page = get(&site, "/server?queue=orders").await.status(200).lacks("hunter2");
    page.has("For programs that use orders").has("As worker").has("permitted").has("it opens");
    get(&site, "/server?queue=texts").await.status(404);
    assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0), "it changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_comes_first_and_with_advice() {
    let server = Server::builder().config("maxmemory-policy", "allkeys-lru").start();
    let connect = Connect::new(&server.url()).unwrap();
    let dashboard = Dashboard::new(Access::everyone(Role::Operator)).server(connect);
    let page = get(&dashboard.router().unwrap(), "/server").await.status(200);
    let page = page.has("1 bad, 1 to beware of.").has("CONFIG SET maxmemory-policy noeviction");
    let at = |text: &str| page.text().find(text).unwrap();
    assert!(
        at("Eviction</th>") < at("Persistence</th>") && at("Persistence</th>") < at("Role</th>")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn only_operators_see_it_and_only_where_the_server_is_known() {
    let server = Server::start();
    let (orders_there, viewer) = site(&server.url(), Role::Viewer).await;
    get(&viewer, "/queues").await.lacks("href=\"server\"");
    get(&viewer, "/server").await.status(403).lacks("noeviction");
    let unknown = crate::support::site(&orders_there, Role::Admin);
    get(&unknown, "/queues").await.lacks("href=\"server\"");
    get(&unknown, "/server").await.status(404).has("was given neither the address of a server");
    // In memory there is no server.
    let dashboard = Dashboard::new(Access::everyone(Role::Admin)).queue(orders().await);
    let memory = dashboard.server(Connect::new("memory:").unwrap()).router().unwrap();
    get(&memory, "/server").await.status(501).has("is not supported here");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_told_and_comes_back() {
    let server = Server::builder().append_only("always").start();
    let (orders, site) = site(&server.url(), Role::Operator).await;
    send(&orders, "order-1", "{}").await;
    server.kill();
    let page = get(&site, "/server?queue=orders").await.status(503);
    page.has("role=\"alert\"").has("Is a Redis server running there?").has("check?queue=orders");
    server.restart();
    let there = async { while get(&site, "/server").await.status != 200 {} };
    tokio::time::timeout(Duration::from_secs(60), there).await.expect("it is back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_shown_with_the_node_that_is_away_and_the_node_of_each_queue() {
    let cluster = Cluster::start();
    let address = |node: &Server| format!("127.0.0.1:{}", node.port());
    let connect = Connect::new(&cluster.url()).unwrap();
    let connection = connect.clone().connect().await.unwrap();
    let mut dashboard = Dashboard::new(Access::everyone(Role::Operator)).server(connect);
    let names = ["orders", "texts", "mails"];
    for name in names {
        dashboard = dashboard.queue(open(&connection, name).await);
    }
    let site = dashboard.router().unwrap();
    let [first, second, third] = cluster.nodes() else { panic!("three nodes") };
    third.kill();
    let page = get(&site, "/server").await.status(200);
    let page = page.has("A cluster with 3 primaries, on 3 nodes").has("0-5460");
    let page = page.has("cannot be reached").has(&address(third));
    for name in names {
        let owner = cluster.owner(first, cluster.slot(&format!("{{{name}}}")));
        let (_, row) = page.text().split_once(&format!("queue?queue={name}\"")).unwrap();
        let (row, _) = row.split_once("</tr>").unwrap();
        assert!(row.contains(&address(owner)), "{name}: {row}");
    }
    assert!(page.text().contains(&address(second)));
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_are_shown_with_those_they_watch_over() {
    let sentinels = Sentinels::builder().password("hunter2").start();
    let url = sentinels.url().replace("://", "://:hunter2@");
    let (_, site) = site(&url, Role::Operator).await;
    let page = get(&site, "/server").await.status(200).lacks("hunter2");
    let page = page.has("servers behind 3 sentinels").has("<th scope=\"col\">Quorum</th>");
    let primary = format!("127.0.0.1:{}", sentinels.primary().port());
    let page = page.has(&format!("replica of {primary}"));
    page.has(&format!("<code>{primary}</code>"));
}

/// Answers as a server that was written by an enemy.
fn enemy() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || talk(&stream.unwrap()));
        }
    });
    url
}

fn talk(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    let mut out = stream;
    loop {
        let line = |lines: &mut BufReader<&TcpStream>| {
            let mut line = String::new();
            lines.read_line(&mut line).ok().filter(|read| *read > 0)?;
            line.trim_end()[1..].parse::<usize>().ok()
        };
        let mut words = Vec::new();
        for _ in 0..line(&mut lines)? {
            let mut word = vec![0; line(&mut lines)? + 2];
            lines.read_exact(&mut word).ok()?;
            words.push(String::from_utf8_lossy(&word).trim_end().to_ascii_uppercase());
        }
        let reply = match &*words[0] {
            "INFO" => {
                let text = HOSTILE_INFO.replace('\n', "\r\n");
                format!("${}\r\n{text}\r\n", text.len())
            }
            "CONFIG" => "*2\r\n$11\r\nappendfsync\r\n$10\r\n<img src=x\r\n".to_owned(),
            "HELLO" => "-ERR unknown command\r\n".to_owned(),
            _ => "+OK\r\n".to_owned(),
        };
        out.write_all(reply.as_bytes()).ok()?;
    }
}

const HOSTILE_INFO: &str = "redis_version:7<script>alert(1)</script>\n\
    valkey_version:9\"><img src=x onerror=alert(1)>\u{1b}[2J\u{202e}\n\
    arch_bits:<b>\nredis_mode:standalone\nrole:slave\nmaster_link_status:<svg/onload=alert(1)>\n\
    master_link_down_since_seconds:' onmouseover='x\nmaxmemory_policy:<i>\u{7}\naof_enabled:1\n";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_hostile_server_says_is_inert() {
    let connect = Connect::new(&enemy()).unwrap();
    let dashboard = Dashboard::new(Access::everyone(Role::Operator)).server(connect);
    let page = get(&dashboard.router().unwrap(), "/server").await.status(200);
    inert(&page);
    page.has("alert(1)").has("&lt;svg/onload").has("\\u{1b}[2J");
}

#[tokio::test]
async fn a_directory_is_examined_for_operators() {
    let home = tempfile::tempdir().unwrap();
    let connection = delayline::connect(&format!("file:{}", home.path().display())).await.unwrap();
    let orders = open(&connection, "orders").await;
    send(&orders, "a", "{}").await;
    let site = |access| {
        let dashboard = Dashboard::new(access).queue(orders.clone()).storage(connection.clone());
        dashboard.router().unwrap()
    };
    let operator = site(Access::everyone(Role::Operator));
    get(&operator, "/queues").await.has(r#"href="server">Directory</a>"#);
    let page = get(&operator, "/server").await.status(200);
    inert(&page);
    let page = page.has("Nothing is wrong.").has("1 queue; a log of").has("1 segment");
    page.has("Last checkpoint").has("p99 up to").has("in reserve").has("free on the disk");
    let viewer = site(Access::everyone(Role::Viewer));
    get(&viewer, "/queues").await.lacks("Directory");
    get(&viewer, "/server").await.status(403);
    let visitor = || delayline_web::Visitor::new("anna", Role::Admin).only_queues(["orders"]);
    let limited = site(Access::resolver(move |_| Some(visitor())));
    get(&limited, "/queues").await.lacks("Directory");
    get(&limited, "/server").await.status(404).lacks("segment");
}
