//! Messages are searched by their content.

use std::time::Duration;

use delayline::Bytes;
use delayline::message::Headers;
use delayline_browser::Settings;

use crate::support::{HOUR, both, orders, send, visit};

/// Finds a message among many by its content, and changes the search.
async fn journey(settings: Settings) {
    let orders = orders().await;
    for number in 0..100 {
        send(&orders, &format!("order-{number}"), HOUR).await;
    }
    let draft = orders.message(&Bytes::from_static(b"{\"customer\":17}")).id("special");
    let draft = draft.header(Headers::KIND, "invoice").due_in(Duration::from_secs(60));
    assert!(draft.send().await.unwrap().is_accepted());
    visit(&orders, settings, async |page, _| {
        page.click("orders").await?;
        page.click("Search").await?;
        page.type_into("Content contains", "customer").await?;
        page.click("Search messages").await?;
        // The page reloads itself until the search has ended.
        page.says("Finished: 101 of 101 examined, 1 found.").await?;
        page.says("invoice").await?;
        page.click("special").await?;
        page.says("customer").await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn messages_are_found_by_content() {
    for settings in both() {
        journey(settings).await;
    }
}
