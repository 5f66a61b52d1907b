//! A web handler that reads a data base through the cache, on tokio.
//!
//! ```text
//! cargo run --release --example loading_async
//! ```
//!
//! As with axum, the state is a clone of the handle, and each request is a task. Requests for one
//! user share one query. A request that its client cancels hands the query over to the next one.
//! The error of a failed query goes to all waiting requests, and is not stored. A query that hangs
//! is replaced after two seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use wheelhouse::Cache;

/// What each handler is given.
#[derive(Clone)]
struct App {
    users: Cache<u64, Arc<str>>,
    queries: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct NoSuchUser(u64);

/// The query behind the cache.
async fn query(app: &App, id: u64) -> Result<Arc<str>, NoSuchUser> {
    app.queries.fetch_add(1, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(50)).await;
    match id {
        1 => Ok("ada".into()),
        _ => Err(NoSuchUser(id)),
    }
}

/// `GET /users/{id}`
async fn get_user(app: App, id: u64) -> (u16, String) {
    match app.users.try_get_with_async(id, query(&app, id)).await {
        Ok(name) => (200, name.to_string()),
        Err(error) => (404, format!("no user {}", error.0)),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let app = App {
        users: Cache::builder()
            .max_capacity(10_000)
            .time_to_live(Duration::from_secs(60))
            .load_timeout(Duration::from_secs(2))
            .build(),
        queries: Arc::default(),
    };

    // The first client goes away while its query runs.
    let first = tokio::spawn(get_user(app.clone(), 1));
    tokio::time::sleep(Duration::from_millis(10)).await;
    let requests: Vec<_> = (0..64)
        .map(|number| tokio::spawn(get_user(app.clone(), 1 + number % 2)))
        .collect();
    tokio::time::sleep(Duration::from_millis(10)).await;
    first.abort();

    let mut answers = Vec::new();
    for request in requests {
        answers.push(request.await.expect("no handler panics"));
    }
    answers.sort();
    answers.dedup();
    println!("answers: {answers:?}");
    println!("queries: {}", app.queries.load(Ordering::SeqCst));
}
