//! Credentials that change.

use crate::support::server::{Server, installed};
use crate::support::{Writer, connected, lost, near, read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wheelhouse_redis::{Credentials, NearError};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_provider_is_asked_at_each_connection_and_again_when_it_was_wrong() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let set_password = async |writer: &mut Writer, password: &str| {
            let password = format!(">{password}");
            let rights = [
                "ACL",
                "SETUSER",
                "near",
                "on",
                "resetpass",
                &password,
                "~*",
                "+@all",
            ];
            writer.send::<()>(&rights).await;
        };
        set_password(&mut writer, "first").await;
        let asked = Arc::new(AtomicU64::new(0));
        // A wrong one is no error of `connect` if the next one is right.
        let passwords = Arc::new(Mutex::new(vec!["wrong", "first"]));
        let provider = {
            let (asked, passwords) = (asked.clone(), passwords.clone());
            move || {
                asked.fetch_add(1, Ordering::SeqCst);
                // The last one stays.
                let mut passwords = passwords.lock().unwrap();
                let next = if passwords.len() > 1 {
                    passwords.remove(0)
                } else {
                    passwords[0]
                };
                async move { Ok(Credentials::new("near", next)) }
            }
        };
        let near = near(server.port)
            .credentials(provider)
            .connect()
            .await
            .unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        // The next connection: the provider is late by one answer.
        set_password(&mut writer, "second").await;
        *passwords.lock().unwrap() = vec!["first", "second"];
        let kill = ["CLIENT", "KILL", "USER", "near"];
        writer.send::<i64>(&kill).await;
        lost(&near, 1).await;
        connected(&near).await;
        assert_eq!(asked.load(Ordering::SeqCst), 4, "asked again at once");
        assert_eq!(near.stats().connections(), 2);
        writer.set("k", "v").await;
        assert_eq!(read(&near, "k").await, "v");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_fails_is_an_error_that_passes() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let failing = || async { Err("the vault is sealed".into()) };
        let near = near(server.port).connect_timeout(Duration::from_secs(5));
        let error = near.credentials(failing).connect().await.unwrap_err();
        assert!(matches!(error, NearError::Credentials { .. }), "{error:?}");
        assert!(error.to_string().contains("the vault is sealed") && error.is_transient());
    }
}

/// What the provider does wrong is told as the provider's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_a_provider_name_it() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let password = ["CONFIG", "SET", "requirepass", "secret"];
        writer.send::<()>(&password).await;
        let near = || near(server.port).connect_timeout(Duration::from_millis(500));
        let hanging = || std::future::pending();
        let message = near().credentials(hanging).connect().await.unwrap_err();
        assert!(
            message.to_string().contains("check the provider"),
            "{message}"
        );
        let of_a_file = || async { Ok(Credentials::new("default", "secret\n")) };
        let message = near().credentials(of_a_file).connect().await.unwrap_err();
        assert!(message.to_string().contains("line break"), "{message}");
    }
}

/// A provider has a time of its own: what it takes is not taken from the server's, and the server
/// is not blamed for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_provider_takes_no_time_from_the_server() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let user = ["ACL", "SETUSER", "near", "on", ">secret", "~*", "+@all"];
        writer.send::<()>(&user).await;
        // The first answer is wrong, so it is asked twice.
        let asked = Arc::new(AtomicU64::new(0));
        let count = asked.clone();
        let slow = move || {
            let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                tokio::time::sleep(Duration::from_millis(1400)).await;
                let password = if is_first { "wrong" } else { "secret" };
                Ok(Credentials::new("near", password))
            }
        };
        let near = near(server.port).connect_timeout(Duration::from_secs(2));
        let near = near.credentials(slow).connect().await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        writer.set("k", "v").await;
        assert_eq!(read(&near, "k").await, "v");
    }
}

/// A provider that panics has failed, and is asked again. It does not end the near cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_panics_is_asked_again() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let user = ["ACL", "SETUSER", "near", "on", ">secret", "~*", "+@all"];
        writer.send::<()>(&user).await;
        let asked = Arc::new(AtomicU64::new(0));
        let panicking = asked.clone();
        let provider = move || {
            let number = panicking.fetch_add(1, Ordering::SeqCst);
            assert!(number != 1, "the provider panics before it is awaited");
            async move {
                assert!(number != 2, "the provider panics");
                Ok(Credentials::new("near", "secret"))
            }
        };
        let near = near(server.port).credentials(provider);
        let near = near.connect().await.unwrap();
        writer
            .send::<i64>(&["CLIENT", "KILL", "USER", "near"])
            .await;
        lost(&near, 1).await;
        connected(&near).await;
        assert_eq!(asked.load(Ordering::SeqCst), 4);
        writer.set("k", "v").await;
        assert_eq!(read(&near, "k").await, "v");
    }
}
