//! Dead letters.

use delayline_browser::Settings;

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
