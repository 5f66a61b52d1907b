//! Sentinels: they name the primary, and report when another server becomes it.

use crate::error::NearError;
use redis::sentinel::SentinelClient;
use redis::{AsyncConnectionConfig, Client, ProtocolVersion, PushInfo, PushKind, Value};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};
use tokio::time::sleep;

/// The report that another server is the primary: its name, then the old and the new address.
const SWITCH: &str = "+switch-master";

/// The sentinels of one primary.
pub(crate) struct Sentinels(Mutex<SentinelClient>);

impl Sentinels {
    pub(crate) fn new(client: SentinelClient) -> Self {
        Self(Mutex::new(client))
    }

    /// The server that the sentinels name now.
    pub(crate) async fn primary(&self) -> Result<Client, NearError> {
        let primary = self.0.lock().await.async_get_client().await;
        primary.map_err(|error| NearError::connecting("the sentinels", error))
    }

    /// Ends when a sentinel reports that the server at this address is replaced.
    pub(crate) async fn replaced(&self, address: &str, pause: Duration) {
        // As the report has it.
        let old = format!("{} ", address.replacen(':', " ", 1));
        loop {
            if let Ok(true) = self.heard(&old).await {
                return;
            }
            // That sentinel has ended: another one follows.
            sleep(pause).await;
        }
    }

    /// Listens to one sentinel: true at the report, false at the end of its connection.
    async fn heard(&self, old: &str) -> redis::RedisResult<bool> {
        let sentinel = self.0.lock().await.async_get_sentinel_client().await?;
        let info = sentinel.get_connection_info().clone();
        let settings = info.redis_settings().clone();
        let settings = settings.set_protocol(ProtocolVersion::RESP3);
        let sentinel = Client::open(info.set_redis_settings(settings))?;
        let (sender, mut reports) = mpsc::unbounded_channel::<PushInfo>();
        let config = AsyncConnectionConfig::new().set_push_sender(sender);
        let connecting = sentinel.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await?;
        connection.subscribe(SWITCH).await?;
        while let Some(report) = reports.recv().await {
            match (report.kind, report.data.last()) {
                (PushKind::Message, Some(Value::BulkString(text))) => {
                    let text = String::from_utf8_lossy(text);
                    let from = text.split_once(' ').map_or("", |(_, addresses)| addresses);
                    if from.starts_with(old) {
                        return Ok(true);
                    }
                }
                (PushKind::Disconnection, _) => return Ok(false),
                _ => {}
            }
        }
        Ok(false)
    }
}
