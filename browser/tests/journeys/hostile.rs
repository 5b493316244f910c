//! Text of others does nothing in a browser either.

use delayline::{Bytes, MessageId};
use delayline_browser::Settings;

use crate::support::{let_die, orders, visit};

const HOSTILE: [&str; 6] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)' style='x",
    "<svg/onload=alert(1)>",
    "javascript:alert(1)",
    "</pre></title><base href=//evil.example><script src=//evil.example/x></script>",
];

#[tokio::test]
async fn hostile_ids_payloads_headers_and_errors_are_inert() {
    let orders = orders().await;
    for (number, text) in HOSTILE.iter().enumerate() {
        let_die(&orders, &[&format!("dead {number} {text}")], text).await;
    }
    for text in HOSTILE {
        let payload = Bytes::from_static(text.as_bytes());
        let id = MessageId::try_from(text).unwrap();
        let draft = orders.message(&payload).id(id).header(text.to_lowercase(), text);
        assert!(draft.send().await.unwrap().is_accepted());
    }
    visit(&orders, Settings::default(), async |page, site| {
        page.open(&site.at("dead?queue=orders")).await?;
        for text in HOSTILE {
            page.says(text).await?;
        }
        for text in HOSTILE {
            page.open(&site.at("messages?queue=orders&state=ready")).await?;
            // A script of the page would have run by now, and a dialog would fail this.
            page.click(text).await?;
            page.says("waits for a free worker").await?;
            assert!(page.address().await?.path().ends_with("/message"));
            page.click("Cancel...").await?;
            page.says(&format!("Cancel {text}?")).await?;
        }
        let foreign = "return [...document.querySelectorAll('script, base, img, iframe')].length";
        assert_eq!(page.run(foreign).await?, 1);
        // The policy holds for scripts that have got in all the same.
        page.run(
            "const script = document.createElement('script');
             script.textContent = 'document.title = \"hit\"';
             document.body.append(script);",
        )
        .await?;
        assert_ne!(page.run("return document.title").await?, "hit");
        let faults = page.faults().await?;
        assert!(faults.len() == 1 && faults[0].contains("Content Security Policy"), "{faults:?}");
        Ok(())
    })
    .await;
}
