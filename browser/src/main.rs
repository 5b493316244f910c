//! Takes a picture of every page of the dashboard, light and dark, wide and narrow.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use delayline_browser::{Page, Settings, Site, samples, with_browser};
use delayline_web::Role;
use png::{BitDepth, ColorType, Compression, Decoder, Encoder, Filter, Transformations};

#[tokio::main]
async fn main() -> Result<()> {
    let folder = env::args_os().nth(1).map(PathBuf::from).context("name a directory")?;
    fs::create_dir_all(&folder)?;
    let site = Site::serve(&samples().await?, Role::Admin).await?;
    with_browser(Settings::default(), async |page| take_all(page, &site, &folder).await).await
}

async fn take_all(page: &Page, site: &Site, folder: &Path) -> Result<()> {
    for (name, address) in PAGES {
        page.open(&site.at(address)).await?;
        if name == "confirm" {
            page.click("Tick order-1386").await?;
            page.click("Delete selected...").await?;
        }
        if name == "job" {
            page.open(&site.at("dead?queue=orders&error=the")).await?;
            page.click("Count all that match").await?;
            page.says("Count: ").await?;
            page.open(&site.at("job?queue=orders")).await?;
        }
        for (kind, dark) in [("light", false), ("dark", true)] {
            page.prefer(dark).await?;
            for (size, width, most) in [("wide", 1_440, 900), ("narrow", 360, 800)] {
                page.resize(width).await?;
                let picture = smaller(&page.screenshot(width, most).await?)?;
                let file = format!("{name}-{kind}-{size}.png");
                fs::write(folder.join(&file), picture).context(file)?;
            }
        }
        page.prefer(false).await?;
        page.resize(1_440).await?;
    }
    Ok(())
}

/// The same picture with a palette of its 256 most frequent colours, and of a third of the bytes.
/// The rest are shades at the edges of letters; each becomes the nearest of these.
fn smaller(picture: &[u8]) -> Result<Vec<u8>> {
    let mut decoder = Decoder::new(Cursor::new(picture));
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info()?;
    let mut bytes = vec![0; reader.output_buffer_size().context("too large a picture")?];
    let frame = reader.next_frame(&mut bytes)?;
    let samples = frame.color_type.samples();
    ensure!(samples >= 3, "the picture has no colours");
    let pixels = bytes.chunks_exact(samples).map(|pixel| [pixel[0], pixel[1], pixel[2]]);
    let mut counts = BTreeMap::new();
    for colour in pixels.clone() {
        *counts.entry(colour).or_insert(0_u32) += 1;
    }
    let mut palette: Vec<[u8; 3]> = counts.keys().copied().collect();
    palette.sort_by_key(|colour| Reverse(counts.get(colour)));
    palette.truncate(256);
    let nearest = |colour: [u8; 3]| {
        let far = |other: &[u8; 3]| -> u32 {
            other.iter().zip(colour).map(|(a, b)| u32::from(a.abs_diff(b)).pow(2)).sum()
        };
        (0..=u8::MAX).zip(&palette).min_by_key(|(_, other)| far(other)).map_or(0, |(n, _)| n)
    };
    let numbers: BTreeMap<_, _> = counts.keys().map(|&colour| (colour, nearest(colour))).collect();
    let indexed: Vec<u8> = pixels.filter_map(|colour| numbers.get(&colour).copied()).collect();
    let mut smaller = Vec::new();
    let mut encoder = Encoder::new(&mut smaller, frame.width, frame.height);
    encoder.set_color(ColorType::Indexed);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_palette(palette.concat());
    encoder.set_compression(Compression::High);
    encoder.set_filter(Filter::NoFilter);
    encoder.write_header()?.write_image_data(&indexed)?;
    Ok(smaller)
}

/// The names of the pictures, and the pages.
const PAGES: [(&str, &str); 11] = [
    ("queues", "queues"),
    ("queue", "queue?queue=orders"),
    ("messages", "messages?queue=orders&state=scheduled"),
    ("message", "message?queue=orders&id=order-9123"),
    ("dead", "dead?queue=orders"),
    ("filter", "dead?queue=orders&error=the"),
    ("confirm", "dead?queue=orders&order=newest"),
    ("job", "dead?queue=orders"),
    ("check", "check?queue=orders"),
    ("paused", "queue?queue=texts"),
    ("workers", "workers"),
];
