//! Pages fit small screens, and can be read by all.

use std::env;
use std::fs;
use std::time::Duration;

use delayline::Connect;
use delayline::backend::Millis;
use delayline::codec::Raw;
use delayline::schedules::{Schedules, Spec};
use delayline_browser::{Page, Settings, Site, samples, with_browser};
use delayline_core::{At, Claim, ClaimId, Op};
use delayline_test_server::Server;
use delayline_web::{Access, Dashboard, Role};
use serde_json::json;

use crate::support::{HOUR, let_die, send};

/// The samples, a server with a finding, and a queue with long texts.
async fn site() -> (Server, Site) {
    let server = Server::builder().config("maxmemory-policy", "allkeys-lru").start();
    let dashboard = Dashboard::new(Access::everyone(Role::Admin));
    let dashboard = dashboard.server(Connect::new(&server.url()).unwrap());
    // The longest name that a queue can have.
    let long = delayline::connect("memory:").await.unwrap().queue(&"q".repeat(128)).await.unwrap();
    let long = long.codec(Raw);
    let_die(&long, &["unbroken"], &"x".repeat(200)).await;
    send(&long, "held", Duration::ZERO).await;
    let lease = Millis::try_from(HOUR).unwrap();
    let claim = Claim::new("worker-1".parse().unwrap(), ClaimId::from_bytes([1; 16]), 1, lease);
    long.backend().apply(At::Server, &Op::Claim(claim)).await.unwrap();
    let dashboard = dashboard.queue(long);
    let dashboard = samples().await.unwrap().into_iter().fold(dashboard, Dashboard::queue);
    (server, Site::of(dashboard.schedules(schedules().await.unwrap())).await.unwrap())
}

/// Schedules, one of them paused and one with a long name.
async fn schedules() -> Result<Schedules, delayline::Error> {
    let schedules = Schedules::open(&delayline::connect("memory:").await?).await?;
    let report = Spec::cron("30 8 * * mon-fri", "America/Argentina/Buenos_Aires", "reports")?;
    for name in ["shop/daily-report", "shop/paused", &"x".repeat(100)] {
        schedules.put(name, &report).await?;
    }
    schedules.pause("shop/paused").await?;
    Ok(schedules)
}

/// Lets a page of a job have something to show.
async fn count(page: &Page, site: &Site) -> anyhow::Result<()> {
    page.open(&site.at("dead?queue=orders&error=the")).await?;
    page.click("Count all that match").await?;
    page.says("Count: ").await
}

/// Every kind of page.
const PAGES: [&str; 30] = [
    "queues",
    "queues?name=or",
    "queue?queue=orders",
    "queue?queue=orders&span=1h",
    "queue?queue=texts&note=paused",
    "messages?queue=orders&state=scheduled",
    "messages?queue=orders&state=ready",
    "messages?queue=orders&state=leased",
    "message?queue=orders&id=order-9123",
    "message?queue=orders&id=order-1386",
    "message?queue=orders&id=unknown",
    "dead?queue=orders",
    "dead?queue=orders&error=the&reason=rejected",
    "dead?queue=orders&order=newest",
    "groups?queue=orders",
    "messages?queue=orders&state=scheduled&from=0s&until=24h",
    "zone",
    "queue?queue=orders&span=24h",
    "queue?queue=orders&span=31d",
    "find?id=absent",
    "find?id=unbroken",
    "search?queue=orders",
    "send?queue=orders",
    "edit?queue=orders&id=order-1386",
    "job?queue=orders",
    "schedules",
    "workers",
    "check?queue=orders",
    "server",
    "server?queue=orders",
];

/// Fails if the page scrolls sideways on any screen, or, from the width of a phone on, breaks a
/// name within a word or lets one thing lie on another.
pub(crate) async fn assert_fits(page: &Page) -> anyhow::Result<()> {
    // Half of the width of a phone is what a magnification of 200 % leaves of it.
    for width in [180, 360, 390, 768, 1_000, 1_440, 3_840] {
        page.resize(width).await?;
        page.prefer(width % 20 == 0).await?;
        // Anything that is cut off would make the page wider.
        let widest = page.run("return document.documentElement.scrollWidth").await?;
        let address = page.address().await?;
        let wide = page.run(WIDE).await?;
        assert!(widest.as_u64().unwrap() <= u64::from(width), "{address}: {width}: {wide}");
        for (what, script) in [("broken", BROKEN_WORDS), ("overlapping", OVERLAPS)] {
            let found = page.run(script).await?;
            assert!(width < 360 || found == json!([]), "{address}: {width}: {what}: {found}");
        }
    }
    Ok(())
}

const WIDE: &str = "
    const right = (it) => it.getBoundingClientRect().right;
    const wide = [...document.querySelectorAll('body *')].filter((it) => right(it) > innerWidth);
    return wide.map((it) => it.outerHTML.slice(0, 80) + ' to ' + right(it));";

const BROKEN_WORDS: &str = "
    const lines = (word) => {
        const range = document.createRange();
        range.selectNodeContents(word);
        return range.getClientRects().length;
    };
    const words = [...document.querySelectorAll('.name')].flatMap((it) => [...it.childNodes]);
    return words.filter((it) => lines(it) > 1).map((it) => it.textContent);";

const OVERLAPS: &str = "
    const all = '.plot text, .queues td, .queues th, .tiles li, .legend li, .badge, button, .late, h1, .well';
    const seen = [...document.querySelectorAll(all)].map((it) => [it, it.getBoundingClientRect()]);
    const drawn = seen.filter(([it, box]) => it.checkVisibility() && box.width > 0);
    const lies = ([a, one], [b, two]) => !a.contains(b) && !b.contains(a)
        && Math.min(one.right, two.right) - Math.max(one.left, two.left) > 1
        && Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top) > 1;
    return drawn.flatMap((one, n) => drawn.slice(n + 1).filter((two) => lies(one, two))
        .map((two) => one[0].textContent + ' / ' + two[0].textContent));";

/// Returns what axe finds on the page, light and dark, wide and narrow.
pub(crate) async fn violations(page: &Page) -> anyhow::Result<Vec<String>> {
    let path =
        env::var_os("AXE_CORE").expect("AXE_CORE: `cargo xtask web browser` gets it from npm");
    page.run(&fs::read_to_string(path)?).await?;
    let address = page.address().await?;
    let mut violations = Vec::new();
    for (dark, width) in [(false, 1_280), (true, 1_280), (false, 360), (true, 360)] {
        page.prefer(dark).await?;
        page.resize(width).await?;
        let found = page
            .run_until_done(
                "const done = arguments[arguments.length - 1];
                 axe.run(document).then(
                     (result) => done(result.violations.map((it) => it.id + ': ' +
                         it.nodes.map((node) => node.html).join(' '))),
                     (error) => done(['' + error]));",
            )
            .await?;
        let found = found.as_array().unwrap().iter();
        violations.extend(found.map(|it| format!("{address}, dark: {dark}, {width}: {it}")));
    }
    Ok(violations)
}

#[tokio::test]
async fn every_page_fits_the_screen_and_is_accessible_in_light_and_dark() {
    let (_server, site) = site().await;
    with_browser(Settings::default(), async |page| {
        let mut found = Vec::new();
        count(page, &site).await?;
        for address in PAGES {
            page.open(&site.at(address)).await?;
            assert_fits(page).await?;
            // The faults of axe itself, if any, do not count.
            assert_eq!(page.faults().await?, Vec::<String>::new(), "{address}");
            found.extend(violations(page).await?);
            page.faults().await?;
        }
        assert_eq!(found, Vec::<String>::new());
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_dark_page_is_dark() {
    let site = Site::serve(&samples().await.unwrap(), Role::Viewer).await.unwrap();
    for (dark, back) in [(false, "rgb(246, 247, 249)"), (true, "rgb(15, 19, 24)")] {
        with_browser(Settings { dark, ..Settings::default() }, async |page| {
            page.open(&site.at("queues")).await?;
            let script = "return getComputedStyle(document.documentElement).backgroundColor";
            assert_eq!(page.run(script).await?, back);
            Ok(())
        })
        .await
        .unwrap();
    }
}
