//! Open pages keep up with the queue, and say so if they cannot.

use std::time::Duration;

use delayline_browser::{Page, Settings, Site, with_browser};
use delayline_test_server::Server;
use delayline_web::Role;
use tokio::time::{Instant, sleep};

use crate::support::{HOUR, open, orders, send, visit};

const STALE: &str = "This page is not up to date";

#[tokio::test]
async fn an_open_page_sees_a_message_and_a_pause_and_grows_older() {
    let orders = orders().await;
    visit(&orders, Settings::default(), async |page, _| {
        page.says("nothing to do").await?;
        send(&orders, "order-1", HOUR).await;
        page.says("next in 59 min").await?;
        assert_eq!(
            page.run("return document.querySelector('tbody strong, td a').innerText").await?,
            "1"
        );
        orders.pause().await?;
        page.says("paused").await?;
        let words = page.text().await?;
        let age = words.lines().find(|line| line.contains("next in")).unwrap().to_owned();
        // Nothing changes but the time.
        page.says_no_more(&age).await?;
        page.says("next in 59 min").await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_one_browser_pauses_another_sees() {
    let orders = orders().await;
    let site = Site::serve(std::slice::from_ref(&orders), Role::Operator).await.unwrap();
    with_browser(Settings::default(), async |watcher| {
        watcher.open(&site.at("queues")).await?;
        listens(&site, 1).await;
        with_browser(Settings { scripts: false, ..Settings::default() }, async |operator| {
            operator.open(&site.at("queue?queue=orders")).await?;
            operator.click("Settings").await?;
            operator.click("Pause deliveries").await?;
            watcher.says("paused").await?;
            operator.click("Resume deliveries").await?;
            watcher.says_no_more("paused").await?;
            assert_eq!(operator.faults().await?, Vec::<String>::new());
            Ok(())
        })
        .await?;
        assert_eq!(watcher.faults().await?, Vec::<String>::new());
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn an_open_page_tells_of_a_frozen_server_and_of_its_return() {
    let server = Server::start();
    let connection = delayline::connect(&server.url()).await.unwrap();
    let queue = open(&connection).await;
    let site = Site::serve(std::slice::from_ref(&queue), Role::Viewer).await.unwrap();
    with_browser(Settings::default(), async |page| {
        page.open(&site.at("queue?queue=orders")).await?;
        page.says("No messages are waiting").await?;
        listens(&site, 1).await;
        server.pause();
        page.says(STALE).await?;
        server.resume();
        page.says_no_more(STALE).await?;
        send(&queue, "order-1", HOUR).await;
        page.says("The next message is due at").await?;
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn an_open_page_survives_a_proxy_without_its_program() {
    let orders = orders().await;
    let site = Site::serve(std::slice::from_ref(&orders), Role::Viewer).await.unwrap();
    with_browser(Settings::default(), async |page| {
        page.open(&site.at("queue?queue=orders")).await?;
        listens(&site, 1).await;
        site.refuse(true);
        site.end_streams();
        page.says(STALE).await?;
        send(&orders, "order-1", HOUR).await;
        site.refuse(false);
        page.says_no_more(STALE).await?;
        page.says("The next message is due at").await?;
        orders.pause().await?;
        page.says("nothing is delivered until").await?;
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_stream_that_ends_is_followed_by_another_without_a_word() {
    let orders = orders().await;
    visit(&orders, Settings::default(), async |page, site| {
        watch(page).await?;
        for streams in 1..=2 {
            listens(site, streams).await;
            site.end_streams();
        }
        listens(site, 3).await;
        orders.pause().await?;
        page.says("paused").await?;
        assert_eq!(page.run("return document.title").await?, "Queues - Delayline");
        Ok(())
    })
    .await;
}

/// Changes the title of the page as soon as it says that it is not up to date.
async fn watch(page: &Page) -> anyhow::Result<()> {
    page.run(
        "const notice = document.querySelector('[data-live]');
         new MutationObserver(() => { if (!notice.hidden) document.title = 'stale'; })
             .observe(notice, { attributes: true });",
    )
    .await?;
    Ok(())
}

/// Waits until the browser has opened `streams` streams of events.
async fn listens(site: &Site, streams: usize) {
    let begin = Instant::now();
    while site.streams() < streams {
        assert!(begin.elapsed() < Duration::from_secs(30), "{} streams", site.streams());
        sleep(Duration::from_millis(20)).await;
    }
}
