//! Orders that time out, while worker processes are killed in the middle of their work.
//! `DELAYLINE_ORDERS=100000` makes it a long run.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use crate::support::{DRIVERS, Running, count, ended, on, run, run_with_input, send_signal};
use delayline_test_server::Server;
use serde_json::Value;

const WORKERS: usize = 4;
const CONCURRENCY: usize = 64;
/// Orders come due together, and while they are handled a worker is killed.
const BURST: usize = 800;

fn orders() -> usize {
    std::env::var("DELAYLINE_ORDERS").map_or(4_000, |orders| orders.parse().unwrap())
}

#[test]
fn every_order_is_closed_whoever_dies() {
    for driver in DRIVERS {
        close_orders(driver);
    }
}

/// A message whose handler kills the whole worker becomes a dead letter after its limit of crashes,
/// and its neighbour is handled.
#[test]
fn a_message_that_kills_its_worker_every_time_costs_three_lives_and_no_neighbours() {
    for driver in DRIVERS {
        let server = Server::builder().own_clock().start();
        let home = tempfile::tempdir().unwrap();
        let lines = "{\"id\":\"poison\",\"payload\":1,\"max_crashes\":3}\n\
                     {\"id\":\"neighbour\",\"payload\":2}\n";
        run_with_input(on(&server, &["send", "--file", "-"]), lines.as_bytes()).code(0);
        let script =
            r#"echo "$DELAYLINE_ID" >> "$0/log"; [ "$DELAYLINE_ID" = poison ] && kill -9 $PPID"#;
        let script = format!("{script}; exit 0");
        let home = home.path().to_str().unwrap();
        let flags = ["--driver", driver, "work", "--until-empty", "--lease", "1m"];
        let worker = || {
            let command = ["--concurrency", "1", "--exec", "sh", "-c", &script, home];
            run(on(&server, &[&flags[..], &command].concat()))
        };
        let died = |n: &i64| {
            let died = worker().code.is_none();
            // Only by the server's clock does the lease of a dead worker run out.
            server.set_clock_step((n + 1) * 61_000);
            died
        };
        let deaths = (0..10).take_while(died).count();
        assert_eq!(deaths, 3);
        let log = std::fs::read_to_string(Path::new(home).join("log")).unwrap();
        let handled = |id| log.lines().filter(|line| *line == id).count();
        assert_eq!((handled("poison"), handled("neighbour")), (3, 1), "{log}");
        let dead = run(on(&server, &["dead", "list", "--json"])).code(0).stdout;
        assert!(dead.contains("\"poison\"") && dead.contains("max_crashes"), "{dead}");
        assert_eq!(count(&server, "dead"), 1);
    }
}

fn close_orders(driver: &str) {
    let server = Server::start();
    let home = tempfile::tempdir().unwrap();
    let orders = orders();
    let bursts = orders.div_ceil(BURST);
    let first =
        SystemTime::now() + Duration::from_millis(2_000 + u64::try_from(orders / 20).unwrap());
    let due = |burst: usize| first + Duration::from_millis(500) * u32::try_from(burst).unwrap();
    let lines: String = (0..orders)
        .map(|n| {
            let at = humantime(due(n / BURST));
            format!(
                "{{\"id\":\"order-{n}\",\"payload\":{n},\"at\":\"{at}\",\"max_crashes\":100}}\n"
            )
        })
        .collect();
    let with_driver = |args: &[&str]| on(&server, &[&["--driver", driver], args].concat());
    // However long it takes to send them: nothing is delivered before every tenth was paid.
    run(with_driver(&["pause", "--create"])).code(0);
    run_with_input(with_driver(&["send", "--file", "-"]), lines.as_bytes()).code(0);
    let paid: HashSet<String> = (0..orders).step_by(10).map(|n| format!("order-{n}")).collect();
    let ids: String = paid.iter().map(|id| format!("{id}\n")).collect();
    run_with_input(with_driver(&["cancel", "--file", "-", "--yes"]), ids.as_bytes()).code(0);
    run(with_driver(&["resume"])).code(0);

    let mut files: Vec<PathBuf> = Vec::new();
    let mut start = || {
        let path = home.path().join(format!("{}.jsonl", files.len()));
        let output = File::create(&path).unwrap();
        files.push(path);
        let concurrency = CONCURRENCY.to_string();
        let args = ["work", "--lease", "5s", "--concurrency", &concurrency];
        crate::support::start(with_driver(&args).stdout(Stdio::from(output)).stderr(Stdio::null()))
    };
    let mut workers: Vec<Running> = (0..WORKERS).map(|_| start()).collect();
    for burst in 0..bursts {
        std::thread::sleep(due(burst).duration_since(SystemTime::now()).unwrap_or_default());
        wait_for_work(&server, &workers);
        let mut victim = workers.remove(burst * 7 % WORKERS);
        victim.kill().unwrap();
        victim.wait().unwrap();
        workers.push(start());
    }
    let left =
        || ["scheduled", "ready", "leased"].map(|state| count(&server, state)).iter().sum::<u64>();
    let begin = Instant::now();
    while left() > 0 {
        assert!(begin.elapsed() < Duration::from_secs(120), "{} are left", left());
        std::thread::sleep(Duration::from_millis(100));
    }
    for worker in workers {
        send_signal(&worker, "-TERM");
        ended(worker).code(0);
    }

    let handled: Vec<Value> = files.iter().flat_map(|path| whole_lines(path)).collect();
    let mut epochs: HashMap<&str, Vec<u64>> = HashMap::new();
    for line in &handled {
        epochs
            .entry(line["id"].as_str().unwrap())
            .or_default()
            .push(line["epoch"].as_u64().unwrap());
    }
    for n in 0..orders {
        let id = format!("order-{n}");
        assert_eq!(epochs.contains_key(&*id), !paid.contains(&id), "{id}");
    }
    for (id, epochs) in &epochs {
        let distinct: HashSet<_> = epochs.iter().collect();
        assert_eq!(
            distinct.len(),
            epochs.len(),
            "{id}: one delivery was handled twice: {epochs:?}"
        );
    }
    let again = handled.len() - epochs.len();
    let hit = handled.iter().filter(|line| line["crashes"] != 0).count();
    println!(
        "{driver}: {orders} orders, {bursts} kills hit {hit} deliveries, {again} were handled again"
    );
    assert!(hit > 0, "no kill has hit a worker at work");
    assert!(again <= bursts * CONCURRENCY, "{again} duplicates of {bursts} kills");
    let closed = u64::try_from(orders - paid.len()).unwrap();
    assert_eq!(count(&server, "acked_total"), closed);
    assert_eq!(count(&server, "cancelled_total"), u64::try_from(paid.len()).unwrap());
    assert_eq!(count(&server, "dead"), 0);
    run(on(&server, &["check"])).code(0);
}

/// Waits until messages are with workers, all of which live, or none are left. If a burst ends
/// before it was noticed, the next one is hit.
fn wait_for_work(server: &Server, workers: &[Running]) {
    assert_eq!(workers.len(), WORKERS);
    // The bands of the index: waiting messages by priority, then leased ones.
    let band = |band: u64| (band << 48).to_string();
    let entries = |from: u64, to: u64| {
        let before = format!("({}", band(to));
        server.command(&["ZCOUNT", "delayline:{orders}:index", &band(from), &before])
    };
    let none = delayline_test_server::Reply::Int(0);
    let begin = Instant::now();
    while entries(4, 5) == none && entries(0, 4) != none {
        assert!(begin.elapsed() < Duration::from_secs(120), "no worker works");
    }
}

/// The lines of a file; a kill may have cut the last one.
fn whole_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn humantime(instant: SystemTime) -> String {
    let since = instant.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let ms = i64::try_from(since.as_millis()).unwrap();
    jiff::Timestamp::from_millisecond(ms).unwrap().to_string()
}
