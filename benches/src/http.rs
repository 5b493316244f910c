//! Serving routers, and requesting from them.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::transport::QUEUE;

/// Serves on a free port, as `delayline serve` does.
pub(crate) async fn serve(router: Router) -> Result<SocketAddr> {
    let service = TowerToHyperService::new(router);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let connection =
                http1::Builder::new().serve_connection(TokioIo::new(stream), service.clone());
            tokio::spawn(async move { drop(connection.await) });
        }
    });
    Ok(address)
}

/// The head of a request of the pull API.
pub(crate) fn pull(verb: &str) -> String {
    format!("POST /api/v1/queues/{QUEUE}/{verb} HTTP/1.1\r\ncontent-type: application/json")
}

/// A connection of one client.
pub(crate) struct Client {
    address: SocketAddr,
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self { address, stream: connect(address).await?, buffer: Vec::new() })
    }

    /// Sends a request with these first lines.
    pub(crate) async fn send(&mut self, head: &str, body: &impl Serialize) -> Result<()> {
        let body = serde_json::to_string(body)?;
        let length = body.len();
        let request =
            format!("{head}\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}");
        Ok(self.stream.write_all(request.as_bytes()).await?)
    }

    /// Sends a request, and parses its answer.
    pub(crate) async fn call<T: DeserializeOwned>(
        &mut self,
        head: &str,
        body: &impl Serialize,
    ) -> Result<T> {
        self.send(head, body).await?;
        self.buffer.clear();
        let head = loop {
            if let Some(end) = self.buffer.windows(4).position(|it| it == b"\r\n\r\n") {
                break end + 4;
            }
            self.read().await?;
        };
        let text = std::str::from_utf8(self.buffer.get(..head).unwrap_or_default())?;
        let text = text.to_ascii_lowercase();
        ensure!(text.split(' ').nth(1) == Some("200"), "{text}");
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let end = head + length.context("an answer without a length")?.parse::<usize>()?;
        while self.buffer.len() < end {
            self.read().await?;
        }
        if text.contains("\r\nconnection: close") {
            self.stream = connect(self.address).await?;
        }
        Ok(serde_json::from_slice(self.buffer.get(head..end).unwrap_or_default())?)
    }

    async fn read(&mut self) -> Result<()> {
        ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the server has closed");
        Ok(())
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
