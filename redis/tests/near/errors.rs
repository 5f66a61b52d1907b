//! Errors at the start, each with what to do.

use crate::support::server::{Server, free_port, installed};
use crate::support::{Near, Writer, client, near, until};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use wheelhouse_redis::{NearError, Tracking};

/// A real server that does not know `HELLO`, as those before Redis 6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_speaks_only_resp2_is_an_error_that_says_so() {
    for program in installed() {
        let server = Server::start(&program, &["--rename-command", "HELLO", ""]).await;
        let error = near(server.port).connect().await.unwrap_err();
        assert!(
            matches!(error, NearError::Resp3NotSupported { .. }),
            "{error:?}"
        );
        assert!(
            error.to_string().contains("use Redis 6 or later or Valkey"),
            "{error}"
        );
        assert!(!error.is_transient());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_right_to_track_gets_an_error() {
    for program in installed() {
        let user = [
            "--user",
            "near",
            "on",
            ">pw",
            "~*",
            "+@all",
            "-client|tracking",
        ];
        let server = Server::start(&program, &user).await;
        let url = format!("redis://near:pw@127.0.0.1:{}/", server.port);
        let error = Near::builder(redis::Client::open(url).unwrap())
            .connect()
            .await
            .unwrap_err();
        assert!(
            matches!(error, NearError::TrackingRefused { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains("+client|tracking"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_an_error() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let url = format!("redis://ada:wrong@127.0.0.1:{}/", server.port);
        let error = Near::builder(redis::Client::open(url).unwrap())
            .connect()
            .await
            .unwrap_err();
        assert!(matches!(error, NearError::Connect { .. }), "{error:?}");
        assert!(
            error
                .to_string()
                .contains("check the user and the password"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn no_server_is_an_error() {
    let error = near(free_port()).connect().await.unwrap_err();
    assert!(matches!(error, NearError::Connect { .. }), "{error:?}");
    assert!(error.is_transient());
}

/// A server that accepts and says nothing costs the stated time.
#[tokio::test]
async fn a_silent_server_costs_the_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let begun = Instant::now();
    let limit = Duration::from_millis(300);
    let error = near(port)
        .connect_timeout(limit)
        .connect()
        .await
        .unwrap_err();
    assert!(
        matches!(error, NearError::ConnectTimedOut { .. }),
        "{error:?}"
    );
    assert!(
        (limit..limit * 20).contains(&begun.elapsed()),
        "{:?}",
        begun.elapsed()
    );
    drop(listener);
}

/// The server refuses prefixes of which one begins with another, and names both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prefixes_that_overlap_are_an_error() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let prefixes = vec!["a:".to_string(), "a:b:".to_string()];
        let builder = near(server.port).tracking(Tracking::Broadcast { prefixes });
        let error = builder.connect().await.unwrap_err();
        assert!(
            matches!(error, NearError::TrackingRefused { .. }),
            "{error:?}"
        );
        let message = error.to_string();
        assert!(
            message.contains("'a:'") && message.contains("'a:b:'"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn invalid_settings_are_named() {
    let cases = [
        (near(1).heartbeat(Duration::ZERO), "heartbeat is 0ns"),
        (near(1).local_ttl(Duration::ZERO), "local_ttl is 0ns"),
    ];
    for (builder, part) in cases {
        let error = builder.connect().await.unwrap_err();
        assert!(matches!(error, NearError::Config(_)), "{error:?}");
        assert!(error.to_string().contains(part), "{error}");
    }
    let local = wheelhouse::Cache::builder().expiry_resolution(Duration::from_nanos(1));
    let error = Near::builder(client(1))
        .local(local)
        .connect()
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("local cache: expiry_resolution is 1ns"),
        "{error}"
    );
}

/// A user who may not send `PING`: the refusal is a sign of life, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_right_to_ping_stays_connected() {
    for program in installed() {
        let rights = ["--user", "near", "on", ">pw", "~*", "+@all", "-ping"];
        let server = Server::start(&program, &rights).await;
        let url = format!("redis://near:pw@127.0.0.1:{}/", server.port);
        let near = Near::builder(redis::Client::open(url).unwrap())
            .heartbeat(Duration::from_millis(100))
            .connect()
            .await
            .unwrap();
        let writer = Writer::connect(server.port).await;
        let refused = async || writer.clone().refused("ping").await >= 5;
        until("heartbeats are refused", refused).await;
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

/// The server closes a connection above `maxclients` with one line. The error says which setting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_clients_are_named() {
    for program in installed() {
        let server = Server::start(&program, &["--maxclients", "1"]).await;
        // A client of the server's start may still be there.
        let _held = loop {
            match Writer::try_connect(server.port).await {
                Ok(held) => break held,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        for _ in 0..20 {
            let error = near(server.port).connect().await.unwrap_err();
            let message = error.to_string();
            assert!(message.contains("max number of clients"), "{message}");
            assert!(message.contains("`maxclients`"), "{message}");
            assert!(!message.contains("password"), "{message}");
            assert!(error.is_transient());
        }
    }
}

/// A value of another type names the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_holds_a_list_is_named() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        writer.send::<i64>(&["LPUSH", "queue", "x"]).await;
        let near = near(server.port).connect().await.unwrap();
        let message = near.get("queue").await.unwrap_err().to_string();
        assert!(
            message.contains("WRONGTYPE") && message.contains("\"queue\""),
            "{message}"
        );
    }
}

/// Such a near cache would never hit.
#[tokio::test]
async fn a_key_prefix_outside_of_the_tracked_prefixes_is_refused() {
    let tracking = |prefix: &str| Tracking::Broadcast {
        prefixes: vec![prefix.into()],
    };
    let builder = near(1).key_prefix("user:").tracking(tracking("order:"));
    let message = builder.connect().await.unwrap_err().to_string();
    assert!(message.starts_with("key_prefix is \"user:\""), "{message}");
    // A part of the keys is tracked, or all.
    for prefix in ["user:", "user:7", "us"] {
        let builder = near(free_port())
            .key_prefix("user:")
            .tracking(tracking(prefix));
        let error = builder.connect().await.unwrap_err();
        assert!(matches!(error, NearError::Connect { .. }), "{error}");
    }
}

/// The TLS library panics where no cryptography was chosen for it: `connect` says what to do.
#[tokio::test]
async fn tls_without_a_crypto_provider_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("rediss://127.0.0.1:{port}/");
    let builder = Near::builder(redis::Client::open(url).unwrap());
    let message = builder.connect().await.unwrap_err().to_string();
    assert!(message.contains("crypto provider"), "{message}");
    assert!(message.contains("`ring`"), "{message}");
}
