//! Dead letters.

use std::time::Duration;

use anyhow::ensure;
use delayline_browser::{Page, Settings};
use tokio::time::Instant;

use crate::support::{let_die, orders, visit};

#[tokio::test]
async fn dead_letters_are_read_redriven_and_deleted() {
    let orders = orders().await;
    let_die(&orders, &["order-1", "order-2", "order-3", "order-4"], "no such customer").await;
    visit(&orders, Settings::default(), async |page, _| {
        page.click("orders").await?;
        page.click("Dead letters").await?;
        page.says("no such customer").await?;
        page.click("Tick order-2").await?;
        page.click("Redrive selected").await?;
        page.says("Redriven. Messages: 1.").await?;
        page.says_no_more("order-2").await?;
        assert_eq!(orders.stats().await?.dead, 3);

        page.click("Tick order-1").await?;
        page.click("Delete selected...").await?;
        page.says("Delete order-1?").await?;
        page.click("Back").await?;
        assert_eq!(orders.stats().await?.dead, 3);
        page.click("Select all").await?;
        page.click("Delete selected...").await?;
        page.says("Delete 3 messages?").await?;
        page.click("Delete").await?;
        page.says("Deleted. Messages: 3.").await?;
        page.says("There are none.").await?;
        assert_eq!(orders.stats().await?.dead, 0);
        assert_eq!(orders.stats().await?.ready, 1);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn those_that_match_are_counted_and_redriven_at_a_rate() {
    for scripts in [true, false] {
        let orders = orders().await;
        let ids: Vec<String> = (0..1_500).map(|number| format!("order-{number}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let_die(&orders, &ids, "the bank timed out").await;
        let_die(&orders, &["order-x"], "no such customer").await;
        visit(&orders, Settings { scripts, ..Settings::default() }, async |page, site| {
            page.open(&site.at("dead?queue=orders")).await?;
            page.click("Filter, or act on all that match").await?;
            page.type_into("Error contains", "timed out").await?;
            // The typed text counts, though it was not sent.
            page.click("Redrive all that match...").await?;
            page.says("timed out").await?;
            page.click("Back").await?;
            page.click("Filter").await?;
            page.says_no_more("no such customer").await?;
            page.click("Count all that match").await?;
            settles(page, scripts, "Count: finished.").await?;
            page.says("Match\n1,500").await?;
            page.click("Show these letters").await?;
            page.click("Redrive all that match...").await?;
            page.says("Redrive all dead letters that match?").await?;
            // The default rate: fifty a second.
            page.click("Redrive").await?;
            page.says("Redrive: running.").await?;
            page.click("Stop").await?;
            settles(page, scripts, "Redrive: stopped.").await?;
            let stats = orders.stats().await?;
            assert!(stats.dead > 1 && stats.ready > 0, "{stats:?}");

            page.click("Show these letters").await?;
            page.click("Delete all that match...").await?;
            page.says("Delete all dead letters that match?").await?;
            page.click("Back").await?;
            page.click("Redrive these 50").await?;
            page.says("Redriven. Messages: 50.").await?;
            // The filter is still there.
            page.says_no_more("no such customer").await?;
            Ok(())
        })
        .await;
    }
}

#[tokio::test]
async fn letters_of_one_cause_are_redriven_together_and_new_ones_appear() {
    for scripts in [true, false] {
        let orders = orders().await;
        let_die(&orders, &["order-1", "order-2"], "no such customer: 8841").await;
        let_die(&orders, &["order-3"], "the bank timed out after 10 s").await;
        visit(&orders, Settings { scripts, ..Settings::default() }, async |page, site| {
            page.click("orders").await?;
            page.click("Dead letters").await?;
            page.click("By error, largest").await?;
            page.says("no such customer: #").await?;
            page.says("the bank timed out after # s").await?;
            if scripts {
                // The open page keeps up.
                let_die(&orders, &["order-4"], "a third cause").await;
                page.says("a third cause").await?;
            }
            page.click("Redrive... of rejected: no such customer: #").await?;
            page.says("2 dead letters match.").await?;
            page.click("Redrive").await?;
            settles(page, scripts, "Redrive: finished.").await?;
            page.open(&site.at("groups?queue=orders")).await?;
            page.says_no_more("no such customer").await?;
            page.click("the bank timed out after # s").await?;
            page.says("order-3").await?;
            page.click("Newest first").await?;
            page.says("order-3").await?;
            Ok(())
        })
        .await;
    }
}

/// Waits until the page of a job says how it has ended, automatically if it runs scripts.
async fn settles(page: &Page, scripts: bool, text: &str) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut waits = !scripts;
    while waits {
        // The page may be just loading.
        let now = page.text().await;
        waits = now.as_ref().map_or(true, |now| now.contains(": running."));
        if waits && now.is_ok() {
            page.click("Reload").await?;
        }
        ensure!(!waits || begin.elapsed() < PATIENCE, "the job still runs: {now:?}");
    }
    page.says(text).await
}

/// How long a job may run.
const PATIENCE: Duration = Duration::from_secs(60);
