//! The page of workers, and the same in the API.

use std::sync::Arc;
use std::time::Duration;

use delayline::{Bytes, Connect, Connection, Job, Worker};
use delayline_test_server::Server;
use delayline_web::{Access, Dashboard, Role, Router, Visitor};
use tokio::sync::{Semaphore, mpsc};

use crate::hostile::inert;
use crate::support::{Answer, Raws, call, get, open, orders, send, site};

/// A worker whose handlers never end, and who has started as many as there are messages.
struct Holding {
    _held: Arc<Semaphore>,
    run: tokio::task::JoinHandle<()>,
}

impl Holding {
    async fn on(queue: &Raws, messages: usize) -> Self {
        let held = Arc::new(Semaphore::new(0));
        let (start, mut started) = mpsc::unbounded_channel();
        let of_handlers = Arc::clone(&held);
        let worker = Worker::builder(queue.clone()).concurrency(7).build().unwrap();
        let run = tokio::spawn(async move {
            let handler = move |_: Job<Bytes>| {
                let (start, held) = (start.clone(), Arc::clone(&of_handlers));
                async move {
                    start.send(()).unwrap();
                    held.acquire().await.unwrap().forget();
                    Ok::<(), std::io::Error>(())
                }
            };
            worker.run(handler).await;
        });
        for _ in 0..messages {
            started.recv().await.unwrap();
        }
        Self { _held: held, run }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.run.abort();
    }
}

/// Asks until the answer has a text.
async fn until(ask: impl AsyncFn() -> Answer, text: &str) -> Answer {
    let asking = async {
        loop {
            let answer = ask().await.status(200);
            if answer.text().contains(text) {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asking).await.expect("the text is there")
}

fn dashboard(connection: &Connection, queue: &Raws, access: Access) -> Router {
    let dashboard = Dashboard::new(access).queue(queue.clone()).workers(connection.clone());
    dashboard.router().unwrap()
}

#[tokio::test]
async fn each_role_sees_who_works_and_only_operators_where() {
    let connection = delayline::connect("memory:").await.unwrap();
    let orders = open(&connection, "orders").await;
    let idle = dashboard(&connection, &orders, Access::everyone(Role::Viewer));
    get(&idle, "/workers").await.status(200).has("No process has workers");
    for id in ["a-1", "a-2", "a-3", "a-4", "<b>"] {
        send(&orders, id, "{}").await;
    }
    let _holding = Holding::on(&orders, 5).await;
    let process = &connection.workers().await.unwrap().processes[0];
    let (host, pid) = (&process.host, std::process::id());
    for role in [Role::Viewer, Role::Operator, Role::Admin] {
        let site = dashboard(&connection, &orders, Access::everyone(role));
        get(&site, "/queues").await.has("href=\"workers\"");
        let page = get(&site, "/workers").await.status(200);
        inert(&page);
        let page = page.has(&process.id.to_string()).has("orders</span></a> (7)").has("version ");
        let page = page.has("message?queue=orders&amp;id=a-1").has("2 more").has("lease ends in");
        // The message says the same.
        let message = get(&site, "/message?queue=orders&id=a-1").await.status(200);
        let message = message.has("Held by").has(&process.id.to_string());
        assert_eq!(
            message.text().contains(&format!("{host}, process {pid}")),
            role != Role::Viewer
        );
        let json = call(&site, "GET", "/workers", "").await.status(200).json();
        let seen = &json["processes"][0];
        assert_eq!((&seen["handlers"], &json["complete"]), (&7.into(), &true.into()));
        assert_eq!(seen["queues"], serde_json::json!([{"queue": "orders", "handlers": 7}]));
        assert_eq!(seen["held"].as_array().unwrap().len(), 5);
        if role == Role::Viewer {
            page.lacks(&format!("process {pid}"));
            assert!(seen["host"].is_null() && seen["pid"].is_null(), "{seen}");
        } else {
            page.has(&format!("{host}, process {pid}"));
            assert_eq!((&seen["host"], &seen["pid"]), (&host.as_str().into(), &pid.into()));
        }
    }
    // The message says the same.
    let site = dashboard(&connection, &orders, Access::everyone(Role::Viewer));
    let json = call(&site, "GET", "/queues/orders/messages/a-1", "").await.json();
    assert_eq!(json["holder"], process.id.to_string());
}

#[tokio::test]
async fn a_visitor_of_some_queues_sees_nothing_of_others() {
    let connection = delayline::connect("memory:").await.unwrap();
    let (orders, secrets) = (open(&connection, "orders").await, open(&connection, "secrets").await);
    send(&secrets, "s-1", "{}").await;
    let _holding = Holding::on(&secrets, 1).await;
    let limited = |queue: &'static str| {
        let access =
            Access::resolver(move |_| Some(Visitor::new("anna", Role::Admin).only_queues([queue])));
        let dashboard = Dashboard::new(access).queue(orders.clone()).queue(secrets.clone());
        dashboard.workers(connection.clone()).router().unwrap()
    };
    let page = get(&limited("orders"), "/workers").await.status(200);
    page.has("No process has workers").lacks("secrets").lacks("s-1");
    let json = call(&limited("orders"), "GET", "/workers", "").await.json();
    assert_eq!(json["processes"], serde_json::json!([]));
    get(&limited("secrets"), "/workers").await.status(200).has("s-1").has("secrets</span></a> (7)");
}

#[tokio::test]
async fn without_a_connection_leases_are_grouped_all_the_same() {
    let orders = orders().await;
    send(&orders, "a-1", "{}").await;
    let _holding = Holding::on(&orders, 1).await;
    let site = site(&orders, Role::Operator);
    let page = get(&site, "/workers").await.status(200).has("a-1");
    page.has("it does not list processes").has("has not introduced itself");
    let json = call(&site, "GET", "/workers", "").await.json();
    let seen = &json["processes"][0];
    assert_eq!((&seen["introduced"], &json["complete"]), (&false.into(), &false.into()));
    assert_eq!(seen["process"].as_str().unwrap().len(), 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_lists_the_processes_of_other_connections() {
    let server = Server::start();
    let connect = Connect::new(&server.url()).unwrap();
    let connection = connect.clone().connect().await.unwrap();
    let of_workers = open(&connect.connect().await.unwrap(), "orders").await;
    send(&of_workers, "a-1", "{}").await;
    let _holding = Holding::on(&of_workers, 1).await;
    // A stranger who takes such a name, and one that is not ours.
    server.command(&["CLIENT", "SETNAME", "delayline-worker;1;<script>"]);
    let orders = open(&connection, "orders").await;
    let site = dashboard(&connection, &orders, Access::everyone(Role::Operator));
    let page = until(async || get(&site, "/workers").await, "process ").await;
    inert(&page);
    page.has("a-1")
        .has("orders</span></a> (7)")
        .lacks("script&gt;")
        .lacks("has not introduced itself");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_the_list_is_told_and_leases_are_grouped() {
    let rules = "admin on >pw ~* +@all -client|list";
    let server = Server::builder().acl_user(rules).start();
    let url = server.url_with_login("admin", "pw");
    let connection = delayline::connect(&url).await.unwrap();
    let orders = open(&connection, "orders").await;
    send(&orders, "a-1", "{}").await;
    let _holding = Holding::on(&orders, 1).await;
    for (role, shown) in [(Role::Operator, "client|list"), (Role::Viewer, "access rules")] {
        let site = dashboard(&connection, &orders, Access::everyone(role));
        let page = get(&site, "/workers").await.status(200).has("a-1");
        page.has("Not all processes can be listed").has("grouped by process").has(shown);
        let json = call(&site, "GET", "/workers", "").await.status(200).json();
        assert!(json["failure"].is_string() && json["complete"] == false, "{json}");
    }
}
