//! Three sentinels, a primary and its replica.

use crate::support::server::{Server, installed, pair, replica_of, sentinel};
use crate::support::{Near, Text, Writer, client, read, until};
use redis::Parser;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wheelhouse_redis::Credentials;

struct Watched {
    primary: Server,
    replica: Server,
    sentinels: Vec<Server>,
}

impl Watched {
    async fn start(program: &Path) -> Self {
        Self::watch(program, pair(program, &[]).await).await
    }

    async fn watch(program: &Path, (primary, replica): (Server, Server)) -> Self {
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            sentinels.push(sentinel(program, primary.port).await);
        }
        for one in &sentinels {
            let mut asked = Writer::connect(one.port).await;
            let begun = Instant::now();
            // All know the replica and each other.
            loop {
                let info: String = asked.send(&["INFO", "sentinel"]).await;
                if info.contains("slaves=1,sentinels=3") {
                    break;
                }
                assert!(begun.elapsed() < Duration::from_secs(40), "{info}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Self {
            primary,
            replica,
            sentinels,
        }
    }

    /// The old primary will know nothing of a failover: it becomes no replica.
    async fn with_deaf_primary(program: &Path) -> Self {
        let renamed = ["SLAVEOF", "REPLICAOF"].map(|name| ["--rename-command", name, ""]);
        let primary = Server::start(program, &renamed.concat()).await;
        let replica = replica_of(program, primary.port).await;
        Self::watch(program, (primary, replica)).await
    }

    /// The second sentinel begins a failover.
    async fn fail_over(&self) {
        let mut asked = Writer::connect(self.sentinels[1].port).await;
        let begun = Instant::now();
        let order = ["SENTINEL", "FAILOVER", "main"];
        while asked.try_send::<()>(&order).await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(40));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn near(&self) -> Near {
        let sentinels = self.sentinels.iter().map(|one| client(one.port));
        self.near_of(sentinels).await
    }

    /// A near cache that is told of these sentinels alone.
    async fn near_of(&self, sentinels: impl IntoIterator<Item = redis::Client>) -> Near {
        let primary = redis::Client::open("redis://main/").unwrap();
        let near = Near::sentinel_builder(sentinels, primary).codec(Text);
        let near = near
            .connect_timeout(Duration::from_secs(5))
            .request_timeout(Duration::from_secs(2));
        let near = near.heartbeat(Duration::from_secs(60));
        let begun = Instant::now();
        let near = near.connect().await.unwrap();
        println!("connected after {:?}", begun.elapsed());
        // It waits for no reply in vain.
        assert!(begun.elapsed() < Duration::from_secs(5));
        near
    }
}

/// The primary dies: the near cache follows the sentinels to the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_primary_is_replaced() {
    for program in installed() {
        let mut watched = Watched::start(&program).await;
        let near = watched.near().await;
        near.set("k", "old".to_string(), None).await.unwrap();
        assert_eq!(read(&near, "k").await, "old");
        watched.primary.kill();
        let begun = Instant::now();
        loop {
            match near.set("k", "new".to_string(), None).await {
                Ok(()) => break,
                Err(error) => assert!(error.is_transient(), "{error:?}"),
            }
            assert!(begun.elapsed() < Duration::from_secs(60));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!("written after {:?}", begun.elapsed());
        assert_eq!(read(&near, "k").await, "new");
        let mut writer = Writer::connect(watched.replica.port).await;
        writer.set("k", "newer").await;
        until("the change is seen", async || {
            read(&near, "k").await == "newer"
        })
        .await;
    }
}

/// The sentinels replace a primary that still answers: `+switch-master` is heard, long before a
/// heartbeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_report_of_a_switch_is_heard() {
    for program in installed() {
        let watched = Watched::start(&program).await;
        let near = watched.near().await;
        near.set("k", "old".to_string(), None).await.unwrap();
        assert_eq!(read(&near, "k").await, "old");
        until("the near cache has subscribed", async || {
            for sentinel in &watched.sentinels {
                let mut asked = Writer::connect(sentinel.port).await;
                let list: String = asked.send(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
                if list.contains(" sub=1 ") {
                    return true;
                }
            }
            false
        })
        .await;
        // Stands still, so that it neither closes connections nor reports.
        watched.primary.stop();
        let begun = Instant::now();
        let left = async || near.stats().connections() >= 2;
        let mut waited = 0;
        while !left().await {
            waited += 1;
            assert!(begun.elapsed() < Duration::from_secs(50), "{waited}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!("left after {:?}", begun.elapsed());
        let mut writer = Writer::connect(watched.replica.port).await;
        writer.set("k", "new").await;
        until("the new value is read", async || {
            near.get("k")
                .await
                .is_ok_and(|value| value.as_deref() == Some("new"))
        })
        .await;
        watched.primary.resume();
    }
}

/// One sentinel hangs for good, whichever it is: a failover by the others is noticed, though the
/// old primary knows nothing of it, and closes no connection. The near cache is told of one
/// sentinel alone and learns of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_hangs_hides_no_failover() {
    for program in installed() {
        let watched = Watched::with_deaf_primary(&program).await;
        let near = watched.near_of([client(watched.sentinels[0].port)]).await;
        near.set("k", "old".to_string(), None).await.unwrap();
        // All are subscribed: the one that was named, and those that it names.
        until("all sentinels are heard", async || {
            for sentinel in &watched.sentinels {
                let mut asked = Writer::connect(sentinel.port).await;
                let list: String = asked.send(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
                // Those of the two other sentinels, and ours.
                if !list
                    .lines()
                    .any(|line| line.contains(" sub=1 ") && line.contains("resp=3"))
                {
                    return false;
                }
            }
            true
        })
        .await;
        watched.sentinels[0].stop();
        watched.fail_over().await;
        let begun = Instant::now();
        while near.stats().connections() < 2 {
            assert!(begun.elapsed() < Duration::from_secs(40), "never noticed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!("left after {:?}", begun.elapsed());
        // Writes go to the new primary.
        until("a write reaches the new primary", async || {
            near.set("k", "new".to_string(), None).await.is_ok()
        })
        .await;
        let mut writer = Writer::connect(watched.replica.port).await;
        assert_eq!(writer.send::<String>(&["GET", "k"]).await, "new");
        watched.sentinels[0].resume();
    }
}

/// A user of the sentinels that may not subscribe: they name the primary, and each heartbeat asks
/// them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_may_not_be_subscribed_to_are_asked() {
    for program in installed() {
        let watched = Watched::with_deaf_primary(&program).await;
        let mut sentinels = Vec::new();
        for sentinel in &watched.sentinels {
            let mut owner = Writer::connect(sentinel.port).await;
            let rights = "ACL SETUSER near on >secret +hello +ping +sentinel|master \
                          +sentinel|sentinels";
            let words: Vec<&str> = rights.split_whitespace().collect();
            owner.send::<()>(&words).await;
            let url = format!("redis://near:secret@127.0.0.1:{}/", sentinel.port);
            sentinels.push(redis::Client::open(url).unwrap());
        }
        let primary = redis::Client::open("redis://main/").unwrap();
        let near = Near::sentinel_builder(sentinels, primary).codec(Text);
        let near = near.connect().await.unwrap();
        near.set("k", "old".to_string(), None).await.unwrap();
        watched.fail_over().await;
        until("the near cache has moved", async || {
            near.stats().connections() >= 2
        })
        .await;
        until("a write reaches the new primary", async || {
            near.set("k", "new".to_string(), None).await.is_ok()
        })
        .await;
        let mut writer = Writer::connect(watched.replica.port).await;
        assert_eq!(writer.send::<String>(&["GET", "k"]).await, "new");
    }
}

/// A sentinel went away, and the others were told to forget it: the near cache forgets it, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_all_have_forgotten_is_not_asked_any_more() {
    for program in installed() {
        let mut watched = Watched::start(&program).await;
        let named = client(watched.sentinels[0].port);
        let primary = redis::Client::open("redis://main/").unwrap();
        let near = Near::sentinel_builder([named], primary).codec(Text);
        let near = near.heartbeat(Duration::from_millis(300));
        let near = near.connect().await.unwrap();
        let mut gone = watched.sentinels.pop().unwrap();
        until("the near cache has learnt of all sentinels", async || {
            let mut asked = Writer::connect(gone.port).await;
            let list: String = asked.send(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
            let mut lines = list.lines();
            lines.any(|line| line.contains(" sub=1 ") && line.contains("resp=3"))
        })
        .await;
        gone.kill();
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", gone.port));
        let listener = listener.await.unwrap();
        for sentinel in &watched.sentinels {
            let mut asked = Writer::connect(sentinel.port).await;
            asked.send::<i64>(&["SENTINEL", "RESET", "main"]).await;
        }
        // Each attempt to connect is accepted and ended.
        let begun = Instant::now();
        let attempt = async || {
            let accepted = tokio::time::timeout(Duration::from_secs(3), listener.accept());
            accepted.await.is_ok()
        };
        while attempt().await {
            assert!(begun.elapsed() < Duration::from_secs(30), "asked for ever");
        }
        println!("forgotten after {:?}", begun.elapsed());
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

/// A provider serves the primary that the sentinels name; its errors are told as its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_serves_the_primary_of_sentinels() {
    for program in installed() {
        let primary = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(primary.port).await;
        let password = ["CONFIG", "SET", "requirepass", "first"];
        writer.send::<()>(&password).await;
        let sentinel = sentinel(&program, primary.port).await;
        let asked = Arc::new(AtomicU64::new(0));
        let builder = |password: &'static str| {
            let asked = asked.clone();
            let named = redis::Client::open("redis://main/").unwrap();
            let near = Near::sentinel_builder([client(sentinel.port)], named).codec(Text);
            near.credentials(move || {
                asked.fetch_add(1, Ordering::SeqCst);
                async move { Ok(Credentials::new("default", password)) }
            })
        };
        let near = builder("first").connect().await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        near.set("k", "v".to_string(), None).await.unwrap();
        let message = builder("second").connect().await.unwrap_err().to_string();
        assert!(message.contains(&primary.port.to_string()), "{message}");
        assert!(
            message.contains("check the user and the password"),
            "{message}"
        );
        // The sentinel refuses a client without a password: the provider serves it, too.
        let mut owner = Writer::connect(sentinel.port).await;
        let demand = ["ACL", "SETUSER", "default", "resetpass", ">first"];
        owner.send::<()>(&demand).await;
        let near = builder("first").connect().await.unwrap();
        near.set("k", "w".to_string(), None).await.unwrap();
    }
}

/// Sentinels and a primary over TLS without a crypto provider: an error that says so.
#[tokio::test]
async fn tls_of_sentinels_without_cryptography_is_an_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let sentinel = redis::Client::open(format!("rediss://127.0.0.1:{port}/")).unwrap();
    let primary = redis::Client::open("rediss://main/").unwrap();
    let error = Near::sentinel_builder([sentinel], primary)
        .connect()
        .await
        .unwrap_err();
    assert!(error.to_string().contains("crypto provider"), "{error}");
}

/// A sentinel that says what a test wants it to say: a view of the primary, or nothing any more.
struct Pretended {
    port: u16,
    view: Arc<View>,
    asked: Arc<AtomicU64>,
}

/// What a pretended sentinel says of the primary.
struct View {
    epoch: AtomicU64,
    port: AtomicU16,
    /// The port of a server that becomes the primary, unreported, when the second connection
    /// subscribes; 0: none does.
    next: AtomicU16,
}

impl Pretended {
    /// A sentinel that answers so many questions for the primary, and is silent after that.
    fn start(epoch: u64, primary: u16, answers: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pretended = Self {
            port: listener.local_addr().unwrap().port(),
            view: Arc::new(View {
                epoch: AtomicU64::new(epoch),
                port: AtomicU16::new(primary),
                next: AtomicU16::new(0),
            }),
            asked: Arc::default(),
        };
        let view = pretended.view.clone();
        let asked = pretended.asked.clone();
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let view = view.clone();
                let asked = asked.clone();
                let stream = stream.unwrap();
                std::thread::spawn(move || converse(stream, number, &view, &asked, answers));
            }
        });
        pretended
    }
}

/// Answers on one connection until its end.
fn converse(mut stream: TcpStream, number: usize, view: &View, asked: &AtomicU64, answers: u64) {
    let mut parser = Parser::new();
    while let Ok(command) = parser.parse_value(&mut stream) {
        let words: Vec<String> = redis::from_redis_value::<Vec<String>>(command).unwrap();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let reply = match words.as_slice() {
            ["HELLO", ..] => "%0\r\n".to_string(),
            ["SUBSCRIBE", channel] => {
                let next = view.next.load(Ordering::SeqCst);
                if number == 1 && next != 0 {
                    view.port.store(next, Ordering::SeqCst);
                    view.epoch.fetch_add(1, Ordering::SeqCst);
                }
                let length = channel.len();
                format!(">3\r\n$9\r\nsubscribe\r\n${length}\r\n{channel}\r\n:1\r\n")
            }
            ["SENTINEL", "MASTER", _] => {
                if asked.fetch_add(1, Ordering::SeqCst) >= answers {
                    // It keeps the connection, and says nothing.
                    continue;
                }
                let epoch = view.epoch.load(Ordering::SeqCst);
                let port = view.port.load(Ordering::SeqCst);
                let fields = format!("+port\r\n+{port}\r\n+config-epoch\r\n+{epoch}\r\n");
                format!("%3\r\n+ip\r\n+127.0.0.1\r\n{fields}")
            }
            ["SENTINEL", "SENTINELS", _] => "*0\r\n".to_string(),
            _ => "+OK\r\n".to_string(),
        };
        if stream.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

/// The longest durations mean "for ever", and no arithmetic with them fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_may_take_as_long_as_it_wants() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let sentinel = Pretended::start(1, server.port, u64::MAX);
        let primary = redis::Client::open("redis://main/").unwrap();
        let near = Near::sentinel_builder([client(sentinel.port)], primary).codec(Text);
        let near = near.connect_timeout(Duration::MAX).heartbeat(Duration::MAX);
        let near = near.connect().await.unwrap();
        near.set("k", "v".to_string(), None).await.unwrap();
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

/// A sentinel that was cut off from the others names the primary of an older epoch, and is the only
/// one that answers: the near cache stays at the present primary. A newer epoch moves it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_epoch_that_answers_first_ends_no_connection() {
    for program in installed() {
        let present = Server::start(&program, &[]).await;
        let other = Server::start(&program, &[]).await;
        let informed = Pretended::start(5, present.port, 1);
        let cut_off = Pretended::start(3, other.port, u64::MAX);
        let sentinels = [client(informed.port), client(cut_off.port)];
        let primary = redis::Client::open("redis://main/").unwrap();
        let near = Near::sentinel_builder(sentinels, primary).codec(Text);
        let near = near.heartbeat(Duration::from_millis(500));
        let near = near.connect().await.unwrap();
        near.set("k", "v".to_string(), None).await.unwrap();
        let mut writer = Writer::connect(present.port).await;
        assert_eq!(writer.send::<String>(&["GET", "k"]).await, "v");
        // Once before the near cache has connected, and then by what watches the sentinels.
        until("the one that was cut off has been asked", async || {
            cut_off.asked.load(Ordering::SeqCst) >= 4 && informed.asked.load(Ordering::SeqCst) >= 2
        })
        .await;
        assert_eq!(near.stats().lost_connections(), 0);
        cut_off.view.epoch.store(6, Ordering::SeqCst);
        until("the newer epoch has been followed", async || {
            near.stats().connections() == 2
        })
        .await;
        near.set("k", "moved".to_string(), None).await.unwrap();
        let mut writer = Writer::connect(other.port).await;
        assert_eq!(writer.send::<String>(&["GET", "k"]).await, "moved");
    }
}

/// Another server becomes the primary after the sentinel has named the first one, and just before
/// the near cache subscribes to watch it: so no report comes. The question that follows the
/// subscription tells of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_just_before_the_subscription_is_noticed() {
    for program in installed() {
        let first = Server::start(&program, &[]).await;
        let second = Server::start(&program, &[]).await;
        let sentinel = Pretended::start(1, first.port, u64::MAX);
        let primary = redis::Client::open("redis://main/").unwrap();
        let near = Near::sentinel_builder([client(sentinel.port)], primary).codec(Text);
        let near = near.heartbeat(Duration::from_secs(60));
        sentinel.view.next.store(second.port, Ordering::SeqCst);
        let near = near.connect().await.unwrap();
        until("the near cache has moved", async || {
            near.set("k", "v".to_string(), None).await.is_ok()
                && Writer::connect(second.port)
                    .await
                    .send::<u64>(&["DBSIZE"])
                    .await
                    == 1
        })
        .await;
    }
}
