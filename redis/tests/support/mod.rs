//! Real servers, a proxy between them and the near cache, and small helpers.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod proxy;
pub mod server;

use redis::aio::MultiplexedConnection;
use std::time::{Duration, Instant};
use wheelhouse_redis::codec::{BoxError, Codec};
use wheelhouse_redis::{NearCache, NearCacheBuilder, NearError};

pub type Near = NearCache<String, String>;

/// Text as it is: a user's own codec.
#[derive(Clone, Copy, Debug)]
pub struct Text;

impl Codec<String> for Text {
    fn encode(&self, value: &String) -> Result<Vec<u8>, BoxError> {
        Ok(value.clone().into_bytes())
    }

    fn decode(&self, bytes: &[u8]) -> Result<String, BoxError> {
        Ok(String::from_utf8(bytes.to_vec())?)
    }
}

pub fn client(port: u16) -> redis::Client {
    redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap()
}

/// A near cache of text, with bounds for a busy machine.
pub fn near(port: u16) -> NearCacheBuilder<String, String, Text> {
    Near::builder(client(port))
        .codec(Text)
        .connect_timeout(Duration::from_secs(10))
        .request_timeout(Duration::from_secs(15))
        .heartbeat(Duration::from_secs(5))
        .fail_fast_after(u32::MAX)
}

/// A connection of a writer: neither through the near cache nor through a proxy.
#[derive(Clone)]
pub struct Writer(MultiplexedConnection);

impl Writer {
    pub async fn connect(port: u16) -> Self {
        let connected = Self::try_connect(port).await;
        connected.expect("the server accepts the writer")
    }

    pub async fn try_connect(port: u16) -> redis::RedisResult<Self> {
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(10)))
            .set_response_timeout(Some(Duration::from_secs(30)));
        let connection = client(port)
            .get_multiplexed_async_connection_with_config(&config)
            .await;
        connection.map(Self)
    }

    /// Sends a command; panics if the server refuses it.
    pub async fn send<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let reply = self.try_send(words).await;
        reply.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub async fn try_send<T: redis::FromRedisValue>(
        &mut self,
        words: &[&str],
    ) -> redis::RedisResult<T> {
        let mut cmd = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| {
            cmd.arg(word);
        });
        cmd.query_async(&mut self.0).await
    }

    pub async fn set(&mut self, key: &str, value: &str) {
        self.send::<()>(&["SET", key, value]).await;
    }

    /// How often the server has executed a command.
    pub async fn calls(&mut self, command: &str) -> u64 {
        self.count(command, "calls").await
    }

    /// How often the server has refused a command before it was executed.
    pub async fn refused(&mut self, command: &str) -> u64 {
        self.count(command, "rejected_calls").await
    }

    /// A number that the server tells of itself.
    pub async fn info(&mut self, name: &str) -> u64 {
        let info: String = self.send(&["INFO", "stats"]).await;
        let begin = format!("{name}:");
        let number = info.lines().find_map(|line| line.strip_prefix(&begin));
        number.unwrap().trim().parse().unwrap()
    }

    async fn count(&mut self, command: &str, what: &str) -> u64 {
        let stats: String = self.send(&["INFO", "commandstats"]).await;
        let begin = format!("cmdstat_{command}:");
        let line = stats.lines().find_map(|line| line.strip_prefix(&begin));
        let mut fields = line.into_iter().flat_map(|line| line.split(','));
        let count = fields.find_map(|field| field.strip_prefix(&format!("{what}="))?.parse().ok());
        count.unwrap_or(0)
    }
}

/// Waits until a condition holds; panics after a time that suffices on a busy machine.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let begun = Instant::now();
    while !holds().await {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "waited in vain until {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until the near cache has a connection.
pub async fn connected(near: &Near) {
    until("the near cache is connected", async || near.is_connected()).await;
}

/// Waits until the near cache has noticed the loss of its connection.
pub async fn lost(near: &Near, losses: u64) {
    let noticed = async || near.stats().lost_connections() >= losses;
    until("the near cache has noticed the loss", noticed).await;
}

/// Reads a key that must be there. A key whose connection was cut twice in a row is read again.
pub async fn read(near: &Near, key: &str) -> String {
    loop {
        match near.get(key).await {
            Ok(value) => return value.unwrap_or_else(|| panic!("{key} is absent")),
            Err(NearError::Refused { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(error) => panic!("{key}: {error}"),
        }
    }
}

/// The values of these results, none of which may be an error.
pub fn values<V>(results: Vec<Result<V, NearError>>) -> Vec<V> {
    results.into_iter().map(Result::unwrap).collect()
}
