//! Queues and browsers for journeys.

use std::time::Duration;

use delayline::codec::Raw;
use delayline::{Bytes, Connection, Job, Outcome, Queue, Worker};
use delayline_browser::{Page, Settings, Site, with_browser};
use delayline_web::Role;

pub(crate) type Raws = Queue<Bytes, Raw>;

/// A queue `orders` in memory.
pub(crate) async fn orders() -> Raws {
    open(&delayline::connect("memory:").await.unwrap()).await
}

pub(crate) async fn open(connection: &Connection) -> Raws {
    connection.queue("orders").await.unwrap().codec(Raw)
}

pub(crate) async fn send(queue: &Raws, id: &str, delay: Duration) {
    let draft = queue.message(&Bytes::from_static(b"{\"total\":9}")).id(id).due_in(delay);
    assert!(draft.send().await.unwrap().is_accepted());
}

/// Messages that a worker has rejected.
pub(crate) async fn let_die(queue: &Raws, ids: &[&str], reason: &str) {
    for id in ids {
        send(queue, id, Duration::ZERO).await;
    }
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    let reason = reason.to_owned();
    worker
        .run(move |_: Job<Bytes>| {
            let reason = reason.clone();
            async move { Ok::<_, std::io::Error>(Outcome::reject(reason)) }
        })
        .await;
}

/// Opens the overview of a queue's dashboard, and checks in the end that the browser had nothing to
/// complain about.
pub(crate) async fn visit(
    queue: &Raws,
    settings: Settings,
    journey: impl AsyncFnOnce(&Page, &Site) -> anyhow::Result<()>,
) {
    let site = Site::serve(std::slice::from_ref(queue), Role::Admin).await.unwrap();
    with_browser(settings, async |page| {
        page.open(&site.at("queues")).await?;
        journey(page, &site).await?;
        assert_eq!(page.faults().await?, Vec::<String>::new());
        Ok(())
    })
    .await
    .unwrap();
}

/// A wide screen, and a narrow one without scripts.
pub(crate) fn both() -> [Settings; 2] {
    let wide = Settings::default();
    [wide, Settings { scripts: false, width: 360, ..wide }]
}

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
