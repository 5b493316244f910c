//! The files that pages load. Their names change with their contents, so that browsers may keep
//! them.

use std::sync::LazyLock;

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;
use xxhash_rust::xxh3::xxh3_64;

/// A file of the program.
pub(crate) struct Asset {
    pub(crate) name: String,
    media_type: &'static str,
    text: &'static str,
}

pub(crate) static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("style", "css", "text/css; charset=utf-8", include_str!("../assets/style.css"))
});

pub(crate) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("page", "js", "text/javascript; charset=utf-8", include_str!("../assets/page.js"))
});

pub(crate) static ICON: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("icon", "svg", "image/svg+xml", include_str!("../assets/icon.svg"))
});

/// The icon of a page that shows trouble.
pub(crate) static TROUBLE: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("../assets/trouble.svg");
    Asset::new("trouble", "svg", "image/svg+xml", text)
});

impl Asset {
    fn new(stem: &str, end: &str, media_type: &'static str, text: &'static str) -> Self {
        Self { name: format!("{stem}-{:016x}.{end}", xxh3_64(text.as_bytes())), media_type, text }
    }

    pub(crate) fn response(&self) -> impl IntoResponse + use<> {
        let cache = "private, max-age=31536000, immutable";
        ([(CONTENT_TYPE, self.media_type), (CACHE_CONTROL, cache)], self.text)
    }
}
